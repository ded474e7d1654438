"""Stamps, reports, snapshots and verdicts as written in transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detector.core.protocol.assembler import Assembled
from stilltrue.model import Facts, Message, Verdict, Wait
from stilltrue.protocol.report import (
    CallerTarget,
    CallTarget,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Report,
    ResourceTarget,
    Seen,
    ServedCall,
    Target,
)
from stilltrue.protocol.stamp import Stamp


def stamp_in_words(stamp: Stamp | None) -> str:
    """``stamp: a, call 1, colour 0, floor 1``."""
    if stamp is None:
        return "no stamp: its colour is the request's, and the caller knows who answers"
    return f"stamp: {stamp.source}, call {stamp.number}, colour {stamp.colour}, floor {stamp.floor}"


def report_in_words(report: Report) -> Iterator[str]:
    """The cut of one process, one line per recorded item."""
    serves = f"snapshot {report.snapshot}" if report.snapshot == report.after + 1 else f"({report.after}, {report.snapshot}]"
    lost = f", {report.lost} lost" if report.lost else ""
    yield f"{report.process.instance} cuts for {serves}: {report.activity.value.lower()}, next call {report.next_number}{lost}"
    yield from (f"{INDENT}{_outstanding(call)}" for call in report.made)
    yield from (f"{INDENT}{_served(call)}" for call in report.served)
    yield from (f"{INDENT}{_seen(seen)}" for seen in report.seen)
    yield from (f"{INDENT}{_wait(wait)}" for wait in report.waits)
    yield from (f"{INDENT}{hold.party} holds 1 of {hold.capacity} of {hold.resource}" for hold in report.holds)
    if report.facts:
        yield f"{INDENT}facts:{facts_in_words(report.facts)}"


INDENT = "  "


def _outstanding(call: OutstandingCall) -> str:
    items = f", {call.sent} items sent, {call.received} received" if call.sent or call.received else ""
    state = "in doubt" if call.doubtful else "outstanding"
    return f"call {call.number} {call.method} of {call.party or 'nobody'}: {state}{items}{facts_in_words(call.facts)}"


def _served(call: ServedCall) -> str:
    state = "served" if call.serving else f"queued behind {call.pool}" if call.pool else "arrived"
    caller = f"call {call.number} of {call.caller.process}" if call.caller else "a call of a stranger"
    items = f", {call.sent} items sent, {call.received} received" if call.sent or call.received else ""
    return f"{call.party}: {caller}, {state}{items}{', caller lost' if call.hung_up else ''}"


def _seen(seen: Seen) -> str:
    answered = sorted([*(answer.number for answer in seen.answered), *seen.plain])
    told = f", answered {', '.join(map(str, answered))}" if answered else ""
    return f"seen of {seen.caller.process}: up to call {seen.highest}{told}"


def _wait(wait: LocalWait) -> str:
    needs = "" if len(wait.among) == 1 else f"{wait.needs} of "
    among = ", ".join(_target(target) for target in wait.among)
    until = f", until {wait.deadline:g}" if wait.deadline is not None else ""
    return f"wait {wait.number}: {wait.waiter} for {needs}{among}{until}"


def _target(target: Target) -> str:
    match target:
        case CallTarget(number=number):
            return f"call {number}"
        case ResourceTarget(resource=resource):
            return resource
        case PartyTarget(party=party):
            return party
        case CallerTarget(served=served):
            return f"the caller of {served}"


def assembled_in_words(assembled: Assembled) -> Iterator[str]:
    """The snapshot assembled from the reports."""
    yield f"snapshot {assembled.snapshot.ref.id} is {assembled.outcome.value}"
    if assembled.snapshot.missing:
        yield f"{INDENT}missing: {', '.join(assembled.snapshot.missing)}"
    yield from (f"{INDENT}{text}" for text in assembled.orphans)
    yield from (f"{INDENT}{_resolved(wait)}" for wait in assembled.snapshot.waits.waits())
    yield from (f"{INDENT}{_message(message)}" for message in assembled.snapshot.in_transit)
    for process, numbers in assembled.settled.items():
        yield f"{INDENT}settled: {process.instance}'s doubt of call {', '.join(map(str, numbers))}"


def _resolved(wait: Wait) -> str:
    until = f" (until {wait.deadline:g})" if wait.deadline is not None else ""
    needs = "" if len(wait.among) == 1 else f"{wait.needs} of "
    return f"{wait.waiter} waits for {needs}{', '.join(wait.among)}: {wait.what}{until}"


def _message(message: Message) -> str:
    target = f" to {message.target}" if message.target else ""
    return f"in transit from {message.source}{target}: {message.what}{facts_in_words(message.facts)}"


def verdict_in_words(verdict: Verdict) -> Iterator[str]:
    """The verdict, its sentence, and the stuck parties."""
    yield f"{verdict.predicate} {verdict.holds.value}: {verdict.witness.text}"
    if verdict.remainder:
        yield f"{INDENT}core: {', '.join(verdict.core)}; behind: {', '.join(verdict.behind) or 'nobody'}"


def facts_in_words(facts: Facts | Mapping[str, object]) -> str:
    """`` token=1``, with a space before each."""
    return "".join(f" {key}={value}" for key, value in sorted(facts.items()))
