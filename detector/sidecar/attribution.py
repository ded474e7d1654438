"""Attributes an outbound call to the inbound call that made it; if the evidence is ambiguous, the caller is unknown.

The rules (docs/sidecar.md argues why doubt never becomes a TRUE):

1. ``stilltrue-party``, which the sidecar adds to the inbound call, identifies it for certain, but only while the call is in
   progress.
2. Otherwise the trace-id (of ``traceparent`` or ``b3``) or ``x-request-id`` identifies it, if that call is in progress and
   nothing else here has ever used the id. Another inbound call with the id, earlier or concurrent, may have left work behind: a
   job that continues after the reply, or a handler whose caller gave up and retried. So may an outbound call with the id but
   without an inbound one. With several ids, none may be that of another inbound call.
3. In all other cases the caller is unknown, and every inbound call of the trace may have made the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from struct import Struct

from detector.sidecar.tracking.calls import InboundCall
from stilltrue.model import PartyName

TRACES_MAX = 500_000
"""Number of traces that each of two generations remembers."""
_BITS_PER_TRACE = 16
_B3_DIGITS = (16, 32)
REQUEST_ID_BYTES_MAX = 256
_NUMBERS = Struct(">4Q")
"""The hash of a trace, as four numbers."""


class Attribution(Enum):
    """How the caller of an outbound call was found, or why it was not."""

    PARTY = "party"
    TRACE = "trace"
    AMBIGUOUS = "ambiguous"
    ENDED = "ended"
    UNKNOWN = "unknown"


class TraceFilter:
    """Remembers at least the newest ``traces_max`` traces in bounded memory, in two alternating Bloom filters.

    It mistakes about one new trace in 400 for a known one, which costs an attribution.
    """

    def __init__(self, traces_max: int = TRACES_MAX) -> None:
        self._traces_max = traces_max
        self._bits = traces_max * _BITS_PER_TRACE
        self._newer, self._older = self._empty(), self._empty()
        self._count = 0

    def __contains__(self, trace: bytes) -> bool:
        places = self._places(trace)
        return _all_set(self._newer, places) or _all_set(self._older, places)

    def add(self, trace: bytes) -> bool:
        """Remember ``trace``; return whether it was known."""
        places = self._places(trace)
        if _all_set(self._newer, places):
            return True
        known = _all_set(self._older, places)
        if self._count == self._traces_max:
            self._newer, self._older, self._count = self._empty(), self._newer, 0
        for place in places:
            self._newer[place >> 3] |= 1 << (place & 7)
        self._count += 1
        return known

    def _empty(self) -> bytearray:
        return bytearray(self._bits // 8 + 1)

    def _places(self, trace: bytes) -> list[int]:
        bits = self._bits
        return [number % bits for number in _NUMBERS.unpack(blake2b(trace, digest_size=_NUMBERS.size).digest())]


def _all_set(bits: bytearray, places: list[int]) -> bool:
    for place in places:  # noqa: SIM110 - a generator takes twice as long
        if not bits[place >> 3] & 1 << (place & 7):
            return False
    return True


class CallerAttribution:
    """The inbound calls in progress, by party and by trace."""

    def __init__(self) -> None:
        self._by_party: dict[str, InboundCall] = {}
        self._by_trace: dict[bytes, list[InboundCall]] = {}
        self._used = TraceFilter()
        self._answered = TraceFilter()

    def __len__(self) -> int:
        return len(self._by_party)

    def serving(self, party: PartyName) -> InboundCall | None:
        """Return the inbound call in progress that ``party`` serves."""
        return self._by_party.get(party)

    def arrived(self, call: InboundCall) -> None:
        """An inbound call has arrived."""
        self._by_party[call.party] = call
        for trace in call.traces:
            of_trace = self._by_trace.setdefault(trace, [])
            if not self._used.add(trace):
                call.sole_of.add(trace)
            for other in of_trace:
                other.sole_of.discard(trace)
            of_trace.append(call)

    def ended(self, call: InboundCall, *, answered: bool) -> None:
        """An inbound call has ended; ``answered``: the program replied, rather than the caller abandoning it."""
        self._by_party.pop(call.party, None)
        for trace in call.traces:
            of_trace = self._by_trace.get(trace)
            if of_trace is not None and call in of_trace:
                of_trace.remove(call)
                if not of_trace:
                    del self._by_trace[trace]
                if answered:
                    self._answered.add(trace)

    def caller(self, party: str, traces: Sequence[bytes]) -> tuple[InboundCall | None, Attribution]:
        """Return the inbound call that made the outbound call with this ``party`` (empty: none) and these ids."""
        if party:  # rule 1
            call = self._by_party.get(PartyName(party))
            return (call, Attribution.PARTY) if call is not None else (None, Attribution.ENDED)
        found = [self._of_trace(trace) for trace in traces]
        calls = {call for call, _ in found if call is not None}
        if len(calls) == 1:  # rule 2
            call = calls.pop()
            others = any(trace not in call.traces and self._is_of_inbound(trace) for trace in traces)
            return (None, Attribution.AMBIGUOUS) if others else (call, Attribution.TRACE)
        if calls:
            return None, Attribution.AMBIGUOUS
        for trace in traces:
            if trace not in self._by_trace:
                self._used.add(trace)  # rule 2
        hows = {how for _, how in found}
        return None, next((how for how in (Attribution.AMBIGUOUS, Attribution.ENDED) if how in hows), Attribution.UNKNOWN)

    def _of_trace(self, trace: bytes) -> tuple[InboundCall | None, Attribution]:
        """What one id says about the caller."""
        calls = self._by_trace.get(trace)
        if not calls:
            return None, Attribution.ENDED if trace in self._answered else Attribution.UNKNOWN
        if len(calls) > 1 or trace not in calls[0].sole_of:  # rules 2 and 3
            return None, Attribution.AMBIGUOUS
        return calls[0], Attribution.TRACE

    def _is_of_inbound(self, trace: bytes) -> bool:
        return trace in self._by_trace or trace in self._answered

    def suspects(self, traces: Sequence[bytes]) -> list[InboundCall]:
        """Return the inbound calls that may have made an outbound call with ambiguous ids."""
        return list(dict.fromkeys(call for trace in traces for call in self._by_trace.get(trace, ())))


def trace_of(traceparent: bytes) -> bytes:
    """Return the trace-id of a W3C ``traceparent`` (``00-<32 hex>-<16 hex>-<2 hex>``) in lower case; empty if invalid."""
    parts = traceparent.split(b"-")
    if len(parts) < 4 or len(parts[1]) != 32 or parts[1].strip(b"0") == b"":
        return b""
    return parts[1].lower()


def trace_of_b3(value: bytes) -> bytes:
    """Return the trace-id of ``b3`` (``<trace>-<span>-...``) or ``x-b3-traceid`` as a ``traceparent`` has it; empty if none."""
    trace = value.split(b"-", 1)[0].lower()
    return trace.rjust(32, b"0") if len(trace) in _B3_DIGITS and trace.strip(b"0") else b""


def request_id_of(value: bytes) -> bytes:
    """Return an ``x-request-id`` as an id that equals no trace-id; empty if there is none."""
    return b"request " + value[:REQUEST_ID_BYTES_MAX] if value else b""
