"""Queries the detector: the verdict on a snapshot taken now, or each verdict as it changes.

with Detector() as detector:
    verdict = detector.ask("deadlock")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import grpc
from grpc import insecure_channel

from stilltrue.model import Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.settings import Settings
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1.detector_pb2_grpc import DetectorServiceStub

ASK_SECONDS_MAX = 30.0


class Detector:
    """A connection to the detector for queries; errors are the ``grpc.RpcError`` that the detector returned."""

    def __init__(self, address: str | None = None, *, credentials: grpc.ChannelCredentials | None = None) -> None:
        """``address`` is HOST:PORT; None: that of ``STILLTRUE_DETECTOR``, else 127.0.0.1:7600."""
        where = address or os.environ.get("STILLTRUE_DETECTOR") or Settings().detector
        self._channel = insecure_channel(where) if credentials is None else grpc.secure_channel(where, credentials)
        self._stub: Any = DetectorServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated code

    def ask(self, predicate: str, *, scope: str = "", timeout_seconds: float = ASK_SECONDS_MAX) -> Verdict:
        """Take a snapshot of ``scope`` (empty: all) now, and evaluate ``predicate`` on it."""
        request = pb.AskRequest(predicate=predicate, scope=scope)
        return verdict_from_wire(self._stub.Ask(request, timeout=timeout_seconds).verdict)

    def watch(self, predicate: str = "", *, scope: str = "") -> Iterator[Verdict]:
        """The current verdict, then each one that differs from the previous; empty ``predicate``: those of all predicates."""
        for response in self._stub.Watch(pb.WatchRequest(predicate=predicate, scope=scope)):
            if response.HasField("verdict"):  # else it is a sign of life
                yield verdict_from_wire(response.verdict)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Detector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
