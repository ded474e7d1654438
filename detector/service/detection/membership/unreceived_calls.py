"""Finds calls for which parties have waited for long, and which no member has received.

Such a call may be anywhere, so it counts as able to end by itself (rule 4 of docs/design.md). But it may as well be queued in
front of a member, where no agent sees it: in the listen queue of a worker that is busy, or in its server's own queue. Then a
cycle through it is a deadlock that no answer reports. So the answers name these calls.

Rules:

1. A wait counts if it has neither a deadline nor a party that it is known to wait for, has lasted for ``SECONDS_MIN``, and is
   for calls only. A call counts if it has no deadline either and is not in doubt.
2. No member has received it: none serves it, has it in a queue, or has answered it.
3. While a member is missing, nothing is named: the member may have the call, and the answers say that it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from detector.core.counting import counted
from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import listed
from stilltrue.model import CallNumber, PartyName, ProcessName
from stilltrue.protocol.report import Caller, CallTarget, OutstandingCall, Report

SECONDS_MIN = 5.0
NOT_RECEIVED = "that no member has received"


@dataclass(frozen=True, slots=True)
class UnreceivedCall:
    """A call that no member has received, and a party that waits for it."""

    waiter: PartyName
    call: OutstandingCall

    @property
    def text(self) -> str:
        """The call's method and, if known, the address that it was made to."""
        return f"{self.call.method} to {self.call.target}" if self.call.target else self.call.method


def unreceived_calls(view: Snapshot, reports: Mapping[ProcessName, Report]) -> dict[ProcessName, tuple[UnreceivedCall, ...]]:
    """By member of ``view``, the calls that none of the ``reports`` has; times are the detector's."""
    callers = {message.source for message in view.in_transit if message.target is None}.intersection(view.processes)
    if not callers or view.missing:
        return {}
    tied = frozenset(view.waits.named(view.waits.waiter))
    found = {
        (Caller(name, report.process.incarnation), one.call.number): one
        for name in sorted(callers)
        if (report := reports.get(name)) is not None
        for one in _waited_for(report, (view.ref.ended or 0.0) - SECONDS_MIN)
        if one.waiter not in tied
    }
    for key in _received(found, reports) if found else ():
        found.pop(key, None)
    by_member: dict[ProcessName, tuple[UnreceivedCall, ...]] = {}
    for (caller, _), one in found.items():
        by_member[caller.process] = (*by_member.get(caller.process, ()), one)
    return by_member


def _waited_for(report: Report, until: float) -> Iterator[UnreceivedCall]:
    """The calls for which a party of the report's process has waited since before ``until`` (rule 1)."""
    made: dict[CallNumber, OutstandingCall] = {}
    for wait in report.waits:
        if wait.deadline is not None or wait.since is None or wait.since > until:
            continue
        if not all(isinstance(target, CallTarget) for target in wait.among):
            continue
        made = made or {call.number: call for call in report.made}
        for target in wait.among:
            call = made.get(target.number) if isinstance(target, CallTarget) else None
            if call is not None and call.deadline is None and not call.doubtful:
                yield UnreceivedCall(wait.waiter, call)


def _received(
    calls: Mapping[tuple[Caller, CallNumber], UnreceivedCall], reports: Mapping[ProcessName, Report]
) -> Iterator[tuple[Caller, CallNumber]]:
    """Those of ``calls`` that a member has, or may have had (rule 2)."""
    numbers: dict[Caller, list[CallNumber]] = {}
    for caller, number in calls:
        numbers.setdefault(caller, []).append(number)
    for report in reports.values():
        for served in report.served:
            if served.caller in numbers:
                yield served.caller, served.number
        for seen in report.seen:
            for number in numbers.get(seen.caller, ()):
                if number <= seen.forgotten or seen.answer(number) is not None:
                    yield seen.caller, number


def described(calls: Sequence[UnreceivedCall]) -> str:
    """A member's unreceived calls, as text."""
    texts = list(dict.fromkeys(one.text for one in calls))
    return f"waits for {counted(len(calls), 'call')} {NOT_RECEIVED}: {listed(texts)}"
