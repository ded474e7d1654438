"""Reports the calls in HTTP/2 header blocks to the :class:`Program`, adds our stamps and removes all others.

Stamps that a program forwards, or echoes in a reply, are removed. If a message has several stamps or parties, its caller is
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpc import StatusCode

from detector.sidecar.attribution import request_id_of, trace_of, trace_of_b3
from detector.sidecar.http2.hpack import Headers, size_of
from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.observer import TrackedCall
from detector.sidecar.tracking.program import Program
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.stamp import METADATA_KEY, Stamp
from stilltrue.runtime.calls.outgoing_call import ANSWERS
from stilltrue.runtime.locked_recorder import LockedRecorder, Pair
from stilltrue.runtime.session import LEFT_OUT

PARTY_KEY = "stilltrue-party"
_STAMP, _PARTY = METADATA_KEY.encode(), PARTY_KEY.encode()
_OURS = (_STAMP, _PARTY)
_LEFT_OUT = tuple(prefix.encode() for prefix in LEFT_OUT)
_ADDED_BYTES_MAX = 1024
METHOD_BYTES_MAX = 256
"""Longer paths are truncated to a method name of this size: a peer may send a megabyte, which would bloat the reports."""
_ANSWERS = frozenset(b"%d" % code.value[0] for code in (StatusCode.OK, *ANSWERS))
"""The statuses that settle a call even without a stamp."""

_IDS = {b"traceparent": trace_of, b"b3": trace_of_b3, b"x-b3-traceid": trace_of_b3, b"x-request-id": request_id_of}
"""The headers with ids that programs forward from the calls they serve to those they make, and how to read each."""
_TIMEOUT_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class _Request:
    """The relevant parts of a request's headers."""

    __slots__ = ("grpc", "kept", "parties", "path", "stamps", "timeout", "traces")

    def __init__(self, headers: Headers, scheme: bytes) -> None:
        self.path = b""
        self.stamps: list[bytes] = []
        self.parties: set[bytes] = set()
        self.traces: tuple[bytes, ...] = ()
        self.timeout: float | None = None
        self.grpc = False
        self.kept: Headers = []
        for pair in headers:
            name, value = pair
            if name == _STAMP:
                self.stamps.append(value)
                continue
            if name == _PARTY:
                self.parties.add(value)
                continue
            if name == b":path":
                self.path = value
            elif name == b"grpc-timeout":
                self.timeout = timeout_of(value)
            elif (id_of := _IDS.get(name)) is not None:
                found = id_of(value)
                if found and found not in self.traces:
                    self.traces = (*self.traces, found)
            elif name == b"content-type":
                self.grpc = value.startswith(b"application/grpc")
            elif name == b":scheme" and scheme:
                pair = (name, scheme)  # noqa: PLW2901 - the scheme of the outgoing connection
            self.kept.append(pair)

    @property
    def caller_evidence(self) -> tuple[str, tuple[bytes, ...]]:
        """The caller's party (empty: none) and ids; none if it names several parties."""
        if len(self.parties) > 1:
            return "", ()
        return "".join(party.decode("utf-8", "replace") for party in self.parties), self.traces

    @property
    def tracked(self) -> bool:
        return self.grpc and not self.path.startswith(_LEFT_OUT)

    @property
    def method(self) -> str:
        """The call's method in reports."""
        return self.path[:METHOD_BYTES_MAX].decode("utf-8", "replace")


def timeout_of(value: bytes) -> float | None:
    """Return a ``grpc-timeout`` in seconds; None if it is invalid."""
    unit = _TIMEOUT_SECONDS.get(value[-1:])
    return float(value[:-1]) * unit if unit is not None and value[:-1].isdigit() else None


def _without_ours(headers: Headers) -> Headers:
    return [pair for pair in headers if pair[0] not in _OURS]


def _fits(headers: Headers, limit: int | None) -> bool:
    """Whether a stamp can be added safely: gRPC may reject headers of more than half the announced limit, at random."""
    return limit is None or size_of(headers) + _ADDED_BYTES_MAX <= limit // 2


def _header(pair: Pair) -> tuple[bytes, bytes]:
    return pair[0].encode(), pair[1].encode()


class Inbound:
    """Observes calls to the program."""

    def __init__(self, program: Program, *, tells_party: bool, scheme: bytes = b"") -> None:
        """``tells_party``: add ``stilltrue-party`` to requests. ``scheme``: replaces ``:scheme``."""
        self._program = program
        self._tells_party = tells_party
        self._scheme = scheme

    def opened(self, headers: Headers, limit: int | None) -> tuple[Headers, TrackedCall | None]:
        """A request arrived from outside."""
        request = _Request(headers, self._scheme)
        if not request.tracked:
            return request.kept, None
        method = request.method
        stamp = _only_stamp(request.stamps, self._program.live, method, reply=False)
        call = self._program.arrives(method, stamp, request.timeout, request.traces)
        if self._tells_party and _fits(request.kept, limit):
            request.kept.append((_PARTY, call.party.encode()))
        return request.kept, TrackedInboundCall(self._program, call)

    def stripped(self, headers: Headers) -> Headers:
        """Remove stamps and parties that the program forwards."""
        return _without_ours(headers)


@dataclass(slots=True, eq=False)
class TrackedInboundCall:
    """One call to the program."""

    _program: Program
    _call: InboundCall

    def request_message(self, count: int) -> None:  # noqa: ARG002 - the recorder counts itself
        """An item arrived."""
        self._program.item_arrived(self._call)

    def request_ended(self) -> None:
        """Irrelevant: it does not show who waits."""

    def reply_begun(self) -> None:
        """The program begins its reply."""
        call = self._call
        if not call.acted or call.wait is not None:
            self._program.answers(call)

    def reply_message(self, count: int) -> None:
        """A message is sent: an item, or a unary reply."""
        self._program.item_sent(self._call, count)

    def server_leaves(self) -> None:
        """The program may end the call."""
        self._program.may_end(self._call)

    def trailers(self, headers: Headers, limit: int | None) -> Headers:
        """The call is complete."""
        headers = _without_ours(headers)
        pair = self._program.ends(self._call)
        if pair is not None and self._call.stamped and _fits(headers, limit):
            return [*headers, _header(pair)]
        return headers

    def broken(self, *, by_caller: bool) -> None:  # noqa: ARG002 - either way it has ended
        """The call has ended."""
        self._program.leaves(self._call)


class Outbound:
    """Observes the program's calls to one upstream."""

    def __init__(self, program: Program, channel: ChannelRecord, *, scheme: bytes = b"") -> None:
        """``channel`` is the record of the upstream. ``scheme``: replaces ``:scheme``."""
        self._program = program
        self._channel = channel
        self._scheme = scheme

    def opened(self, headers: Headers, limit: int | None) -> tuple[Headers, TrackedCall | None]:
        """The program makes a call."""
        request = _Request(headers, self._scheme)
        if not request.tracked:
            return request.kept, None
        channel, fits = self._channel, _fits(request.kept, limit)
        if not fits:  # without a stamp, no server can report the call
            channel = ChannelRecord(self._channel.target)
            channel.strangers = True
        method = request.method
        party, traces = request.caller_evidence
        call, pair = self._program.calls(method, channel, request.timeout, traces=traces, party=party)
        if fits:
            request.kept.append(_header(pair))
        return request.kept, TrackedOutboundCall(self._program, call)

    def stripped(self, headers: Headers) -> Headers:
        """Remove our stamp."""
        return _without_ours(headers)


@dataclass(slots=True, eq=False)
class TrackedOutboundCall:
    """One call by the program."""

    _program: Program
    _call: OutboundCall

    def request_message(self, count: int) -> None:
        """An item is sent. A single one may be a unary request, which is not counted."""
        _count_sent(self._program.live, self._call.made, count)

    def request_ended(self) -> None:
        """The request is complete."""
        self._program.asked(self._call)

    def reply_begun(self) -> None:
        """The reply begins."""
        self._program.answering(self._call)

    def reply_message(self, count: int) -> None:  # noqa: ARG002 - the recorder counts itself
        """An item arrived."""
        self._program.live.item_received(self._call.made)

    def server_leaves(self) -> None:
        """Irrelevant: what the upstream does, its own agent or sidecar sees."""

    def trailers(self, headers: Headers, limit: int | None) -> Headers:  # noqa: ARG002 - headers are only removed
        """The outcome is known or in doubt."""
        stamp, status = _stamp_and_status(headers, self._program.live, self._call.method)
        self._program.settles(self._call, stamp, in_doubt=stamp is None and status not in _ANSWERS)
        return _without_ours(headers)

    def broken(self, *, by_caller: bool) -> None:
        """The program cancelled the call, or the connection was lost: the outcome is unknown."""
        if by_caller:
            self._program.cancels(self._call)
        else:
            self._program.settles(self._call, None, in_doubt=True)


def _stamp_and_status(headers: Headers, live: LockedRecorder, method: str) -> tuple[Stamp | None, bytes]:
    stamps = [value for name, value in headers if name == _STAMP]
    status = next((value for name, value in headers if name == b"grpc-status"), b"")
    return _only_stamp(stamps, live, method, reply=True), status


def _only_stamp(stamps: list[bytes], live: LockedRecorder, method: str, *, reply: bool) -> Stamp | None:
    """Return a message's stamp; None if it has none, or has several, so that its sender is unknown."""
    if len(stamps) > 1:
        live.several_stamps()
        return None
    return live.stamp_of(stamps[0], method, reply=reply) if stamps else None


def _count_sent(live: LockedRecorder, handle: object, count: int) -> None:
    """Count an item that was sent; the first is counted together with the second, which shows that the call is a stream."""
    if count > 1:
        if count == 2:
            live.item_sent(handle)  # type: ignore[arg-type]  # ClientCall or ServerCall
        live.item_sent(handle)  # type: ignore[arg-type]
