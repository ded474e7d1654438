"""Queries the detector: a verdict on a snapshot taken now, or verdicts as they change.

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
    """A connection to the detector for queries. Methods raise ``grpc.RpcError`` with the detector's status."""

    def __init__(self, address: str | None = None, *, credentials: grpc.ChannelCredentials | None = None) -> None:
        """``address``: HOST:PORT, by default ``STILLTRUE_DETECTOR`` or 127.0.0.1:7600. Without ``credentials``, plain text.

        ``credentials``: for TLS ``grpc.ssl_channel_credentials(ca, key, certificate)``; with a token, also
        ``grpc.composite_channel_credentials(those, grpc.access_token_call_credentials(token))``.
        """
        where = address or os.environ.get("STILLTRUE_DETECTOR") or Settings().detector
        self._channel = insecure_channel(where) if credentials is None else grpc.secure_channel(where, credentials)
        self._where = where
        self._stub: Any = DetectorServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated code

    def ask(self, predicate: str, *, scope: str = "", timeout_seconds: float = ASK_SECONDS_MAX) -> Verdict:
        """Take a snapshot of ``scope`` (empty: all processes) now, and return the verdict of ``predicate`` on it.

        Raises ``grpc.RpcError``: DEADLINE_EXCEEDED after ``timeout_seconds``, else the detector's status.
        """
        request = pb.AskRequest(predicate=predicate, scope=scope)
        try:
            return verdict_from_wire(self._stub.Ask(request, timeout=timeout_seconds).verdict)
        except grpc.RpcError as error:
            self._explain(error)
            raise

    def watch(self, predicate: str = "", *, scope: str = "") -> Iterator[Verdict]:
        """Yield the current verdict of ``predicate`` (empty: of each), then each one that differs from the previous one.

        It never ends by itself; raises ``grpc.RpcError`` when the connection to the detector is lost.
        """
        try:
            for response in self._stub.Watch(pb.WatchRequest(predicate=predicate, scope=scope)):
                if response.HasField("verdict"):  # otherwise it is a heartbeat
                    yield verdict_from_wire(response.verdict)
        except grpc.RpcError as error:
            self._explain(error)
            raise

    def _explain(self, error: Any) -> None:
        """Add to an error (Python 3.11 or newer) what to do if there is no detector."""
        if error.code() is grpc.StatusCode.UNAVAILABLE and hasattr(error, "add_note"):
            error.add_note(f"no detector at {self._where}; start one with 'stilltrue serve', or name it by Detector(HOST:PORT)")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Detector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
