"""Attributes an outbound call to the inbound call that made it; where the evidence is ambiguous, the caller is unknown.

The rules (docs/sidecar.md argues why no doubt becomes a TRUE):

1. ``stilltrue-party``, which the sidecar gave to the inbound call, tells exactly, while that call is in progress.
2. Otherwise the trace-id of ``traceparent`` tells, if exactly one inbound call in progress bears it,
3. and the program itself has not been seen to call under that trace with no such call in progress: somebody else in the program
   uses the trace too.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from detector.sidecar.tracking.calls import InboundCall
from stilltrue.model import PartyName

TRACES_MAX = 10_000
"""Traces remembered at the most, of each kind."""


class Attribution(Enum):
    """How the caller of an outbound call was found, or why it was not."""

    PARTY = "party"
    TRACE = "trace"
    AMBIGUOUS = "ambiguous"
    ENDED = "ended"
    UNKNOWN = "unknown"


class CallerAttribution:
    """The inbound calls in progress, by what an outbound call may say of them."""

    def __init__(self, traces_max: int = TRACES_MAX) -> None:
        self._traces_max = traces_max
        self._by_party: dict[str, InboundCall] = {}
        self._by_trace: dict[bytes, list[InboundCall]] = {}
        self._answered: OrderedDict[bytes, None] = OrderedDict()
        self._shared: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_party)

    def arrived(self, call: InboundCall) -> None:
        """An inbound call is in progress."""
        self._by_party[call.party] = call
        if call.trace:
            self._by_trace.setdefault(call.trace, []).append(call)

    def ended(self, call: InboundCall, *, answered: bool) -> None:
        """An inbound call is over; ``answered``: by the program, not given up by its caller."""
        self._by_party.pop(call.party, None)
        of_trace = self._by_trace.get(call.trace)
        if of_trace is not None and call in of_trace:
            of_trace.remove(call)
            if not of_trace:
                del self._by_trace[call.trace]
            if answered:
                self._remember(self._answered, call.trace)

    def caller(self, party: str, trace: bytes) -> tuple[InboundCall | None, Attribution]:
        """The inbound call that an outbound one belongs to; ``party`` and ``trace`` are what it says (empty: nothing)."""
        if party:  # rule 1
            call = self._by_party.get(PartyName(party))
            return (call, Attribution.PARTY) if call is not None else (None, Attribution.ENDED)
        if not trace:
            return None, Attribution.UNKNOWN
        calls = self._by_trace.get(trace)
        if not calls:
            self._remember(self._shared, trace)
            return None, Attribution.ENDED if trace in self._answered else Attribution.UNKNOWN
        if len(calls) > 1 or trace in self._shared:  # rules 2 and 3
            return None, Attribution.AMBIGUOUS
        return calls[0], Attribution.TRACE

    def suspects(self, trace: bytes) -> list[InboundCall]:
        """Those to which an outbound call of an ambiguous trace may belong."""
        return list(self._by_trace.get(trace, ()))

    def _remember(self, among: OrderedDict[bytes, None], trace: bytes) -> None:
        among[trace] = None
        if len(among) > self._traces_max:
            among.popitem(last=False)


def trace_of(traceparent: bytes) -> bytes:
    """The trace-id in a W3C ``traceparent`` (``00-<32 hex>-<16 hex>-<2 hex>``), or nothing."""
    parts = traceparent.split(b"-")
    if len(parts) < 4 or len(parts[1]) != 32 or parts[1].strip(b"0") == b"":
        return b""
    return parts[1]
