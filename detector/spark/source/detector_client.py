"""Reads a live detector's archive over gRPC: its extent, and its rows as Arrow bytes, across restarts of the detector."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from detector.archive.offsets import EVERYTHING, Wanted
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1 import detector_pb2_grpc

T = TypeVar("T")

CALL_SECONDS = 30.0
PAUSE_SECONDS_MAX = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED)
_WORDS = {
    grpc.StatusCode.UNAVAILABLE: "no detector at {address}: {details}",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the detector at {address} did not answer in time: {details}",
    grpc.StatusCode.UNIMPLEMENTED: "the server at {address} is not a detector with a readable archive ({details})",
}


class RemoteError(RuntimeError):
    """The detector's archive cannot be read; the message is one line with the reason."""


class RowsLostError(RemoteError):
    """The requested rows have been removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Rows as an Arrow stream, and the position after them."""

    content: bytes
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A detector's archive. It can be sent to workers; credential files are read where it is used."""

    address: str
    security: Security = field(default_factory=Security)
    retry_seconds: float = 60.0
    """How long to retry if the detector is down, or has too many readers."""

    def ranges(self, table: str, wanted: Wanted = EVERYTHING) -> tuple[tuple[int, int], ...]:
        """Return the ranges of positions that may have ``wanted`` rows, in order: first, and after the last.

        Raises
        ------
        RemoteError
            If the detector does not answer.
        """
        request = pb.DescribeArchiveRequest(
            table=table,
            snapshot_min=wanted.snapshot_min,
            snapshot_max=wanted.snapshot_max,
            day_min=wanted.day_min,
            day_max=wanted.day_max,
        )

        def ask(stub: Any) -> tuple[tuple[int, int], ...]:
            answer = stub.DescribeArchive(request, timeout=CALL_SECONDS)
            return tuple((each.since, each.until) for each in answer.tables[0].ranges)

        patience = _Patience(self)
        while True:
            try:
                return self._with_stub(ask)
            except grpc.RpcError as error:
                patience.after(error)

    def read(self, table: str, columns: Sequence[str], since: int, until: int, *, whole: bool) -> Iterator[Message]:
        """Yield the rows between two positions, in parts; after an interruption it resumes. Raises like :meth:`ranges`."""
        at = since
        patience = _Patience(self)
        while True:
            request = pb.ReadArchiveRequest(table=table, columns=columns, since=at, until=until, whole=whole)
            try:
                with self._channel() as channel:
                    schema = b""
                    for response in detector_pb2_grpc.DetectorServiceStub(channel).ReadArchive(request):  # type: ignore[no-untyped-call]
                        schema = schema or response.schema
                        if response.batch:
                            yield Message(content=schema + response.batch, until=response.until)
                            at = response.until
                            patience = _Patience(self)
            except grpc.RpcError as error:
                patience.after(error)
            else:
                return

    def _with_stub(self, ask: Callable[[Any], T]) -> T:
        with self._channel() as channel:
            return ask(detector_pb2_grpc.DetectorServiceStub(channel))  # type: ignore[no-untyped-call]

    def _channel(self) -> grpc.Channel:
        try:
            return self.security.channel(self.address, _OPTIONS)
        except SecurityRefusedError as error:
            raise RemoteError(str(error)) from None


class _Patience:
    """Retries a call with growing pauses while its failures are transient."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._until = time.monotonic() + remote.retry_seconds
        self._pause = 0.05

    def after(self, error: grpc.RpcError) -> None:
        """Pause before a retry; raise if the failure is permanent or has lasted too long."""
        if error.code() not in _PASSING or time.monotonic() + self._pause > self._until:
            raise _failure(error, self._remote.address) from None
        time.sleep(self._pause)
        self._pause = min(PAUSE_SECONDS_MAX, 2 * self._pause)


def _failure(error: Any, address: str) -> RemoteError:
    details = " ".join((error.details() or "").split())[:300]
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        details = details.rpartition(": ")[2].lower()  # the reason, at the end of gRPC's long text
    text = _WORDS.get(error.code(), "{details}").format(address=address, details=details or "not reachable")
    return RowsLostError(text) if error.code() is grpc.StatusCode.DATA_LOSS else RemoteError(text)
