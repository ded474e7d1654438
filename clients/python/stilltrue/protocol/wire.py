"""The one door between the nouns and protobuf: reports, verdicts and their parts, to the wire and back.

``X_to_wire`` cannot fail for nouns the agent made; ``X_from_wire`` raises :class:`MalformedError` for a message that breaks
the contract of ``snapshot.proto``, and its text names the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import assert_never

from stilltrue.model import (
    NO_FACTS,
    Activity,
    BlindSpot,
    CallNumber,
    Coverage,
    Evidence,
    Fact,
    Facts,
    Holds,
    PartyName,
    ProcessId,
    ProcessName,
    SnapshotId,
    SnapshotRef,
    Verdict,
    WaitNumber,
    Witness,
    process_of,
)
from stilltrue.protocol.names import NameRefusedError, check_process_name
from stilltrue.protocol.report import (
    Answered,
    Caller,
    CallerTarget,
    CallTarget,
    Hold,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Pool,
    Report,
    ResourceTarget,
    Seen,
    ServedCall,
    Target,
)
from stilltrue.protocol.stamp import INCARNATION_MAX, NUMBER_MAX
from stilltrue.v1 import snapshot_pb2 as pb

_ACTIVITY_TO_WIRE = {
    Activity.ACTIVE: pb.ACTIVITY_ACTIVE,
    Activity.IDLE: pb.ACTIVITY_IDLE,
    Activity.BLOCKED: pb.ACTIVITY_BLOCKED,
}
_ACTIVITY_FROM_WIRE = {number: activity for activity, number in _ACTIVITY_TO_WIRE.items()}
_HOLDS_TO_WIRE = {
    Holds.TRUE: pb.HOLDS_TRUE,
    Holds.FALSE: pb.HOLDS_FALSE,
    Holds.UNDETERMINED: pb.HOLDS_UNDETERMINED,
}
_HOLDS_FROM_WIRE = {number: holds for holds, number in _HOLDS_TO_WIRE.items()}


class MalformedError(ValueError):
    """A message that no correct program sends; the sender's fault. One line, which names the field."""


# -- processes and facts -----------------------------------------------------------------------------------------------


def process_to_wire(process: ProcessId) -> pb.ProcessId:
    """One incarnation of a process."""
    return pb.ProcessId(service=process.service, instance=process.instance, incarnation=process.incarnation)


def process_from_wire(message: pb.ProcessId) -> ProcessId:
    """One incarnation of a process; its name is checked."""
    try:
        instance = check_process_name(message.instance)
    except NameRefusedError as refusal:
        raise MalformedError(f"process.instance: {refusal}") from None
    return ProcessId(
        service=message.service,
        instance=instance,
        incarnation=_number("process.incarnation", message.incarnation, INCARNATION_MAX),
    )


def fact_to_wire(value: Fact) -> pb.Fact:
    """One fact; a bool is no int here."""
    if isinstance(value, bool):
        return pb.Fact(truth=value)
    if isinstance(value, int):
        return pb.Fact(whole=value)
    if isinstance(value, float):
        return pb.Fact(real=value)
    return pb.Fact(text=value)


def facts_from_wire(messages: Mapping[str, pb.Fact]) -> Facts:
    """Facts by name."""
    if not messages:
        return NO_FACTS
    return {name: _fact(name, fact) for name, fact in messages.items()}


def _fact(name: str, message: pb.Fact) -> Fact:
    match message.WhichOneof("value"):
        case "whole":
            return message.whole
        case "real":  # what no number is, is a text: no sum leans on it, and no document breaks
            return message.real if math.isfinite(message.real) else str(message.real)
        case "text":
            return message.text
        case "truth":
            return message.truth
        case _:
            raise MalformedError(f"facts[{name!r}]: no value")


def _put_facts(into: Mapping[str, pb.Fact], facts: Facts) -> None:
    for name, value in facts.items():
        into[name].CopyFrom(fact_to_wire(value))  # reading a missing key of a protobuf map makes it


# -- reports -----------------------------------------------------------------------------------------------------------


def report_to_wire(report: Report) -> pb.Report:
    """One process's local state."""
    message = pb.Report(
        process=process_to_wire(report.process),
        snapshot=report.snapshot,
        after=report.after,
        cut_at=report.cut_at,
        next_number=report.next_number,
        activity=_ACTIVITY_TO_WIRE[report.activity],
        made=map(_made_to_wire, report.made),
        served=map(_served_to_wire, report.served),
        seen=map(_seen_to_wire, report.seen),
        pools=(pb.Pool(name=pool.name, size=pool.size, queued=pool.queued) for pool in report.pools),
        waits=map(_wait_to_wire, report.waits),
        holds=(pb.Hold(party=hold.party, resource=hold.resource, capacity=hold.capacity) for hold in report.holds),
        labels=report.labels,
        lost=report.lost,
        happenings=report.happenings,
    )
    _put_facts(message.facts, report.facts)
    return message


def report_from_wire(message: pb.Report) -> Report:
    """One process's local state; a report speaks of no parties but its own process's."""
    process = process_from_wire(message.process)
    own = process.instance
    if message.snapshot <= message.after:
        raise MalformedError(f"snapshot: {message.snapshot} is not above after ({message.after})")
    return Report(
        process=process,
        snapshot=SnapshotId(_number("snapshot", message.snapshot)),
        after=SnapshotId(message.after),
        cut_at=_time("cut_at", message.cut_at),
        next_number=CallNumber(_number("next_number", message.next_number)),
        activity=_ACTIVITY_FROM_WIRE.get(message.activity, Activity.ACTIVE),
        made=tuple(_made_from_wire(own, made) for made in message.made),
        served=tuple(_served_from_wire(own, served) for served in message.served),
        seen=tuple(map(_seen_from_wire, message.seen)),
        pools=tuple(_pool_from_wire(pool) for pool in message.pools),
        waits=tuple(_wait_from_wire(own, wait) for wait in message.waits),
        holds=tuple(
            Hold(party=_own(own, "holds.party", h.party), resource=h.resource, capacity=max(1, h.capacity))
            for h in message.holds
        ),
        facts=facts_from_wire(message.facts),
        labels=dict(message.labels),
        lost=message.lost,
        happenings=message.happenings,
    )


def _made_to_wire(made: OutstandingCall) -> pb.CallMade:
    message = pb.CallMade(
        number=made.number,
        method=made.method,
        target=made.target,
        servers={str(name): incarnation for name, incarnation in made.servers.items()},
        strangers=made.strangers,
        party=made.party,
        since=made.since,
        deadline=made.deadline,
        sent=made.sent,
        received=made.received,
        doubtful=made.doubtful,
        copies_max=0 if made.copies_max == 1 else made.copies_max,
        hedged=made.hedged,
    )
    if made.facts:
        _put_facts(message.facts, made.facts)
    return message


def _made_from_wire(own: ProcessName, message: pb.CallMade) -> OutstandingCall:
    return OutstandingCall(
        number=CallNumber(_number("made.number", message.number)),
        method=message.method,
        target=message.target,
        servers={ProcessName(name): incarnation for name, incarnation in message.servers.items()},
        strangers=message.strangers,
        party=_own(own, "made.party", message.party) if message.HasField("party") else None,
        since=_time("made.since", message.since) if message.HasField("since") else None,
        deadline=_time("made.deadline", message.deadline) if message.HasField("deadline") else None,
        sent=message.sent,
        received=message.received,
        facts=facts_from_wire(message.facts),
        doubtful=message.doubtful,
        copies_max=max(1, message.copies_max),
        hedged=message.hedged,
    )


def _caller_to_wire(caller: Caller | None) -> pb.Caller | None:
    return None if caller is None else pb.Caller(process=caller.process, incarnation=caller.incarnation)


def _caller_from_wire(message: pb.Caller) -> Caller:
    if not message.process:
        raise MalformedError("caller.process: empty")
    return Caller(ProcessName(message.process), _number("caller.incarnation", message.incarnation, INCARNATION_MAX))


def _served_to_wire(served: ServedCall) -> pb.CallServed:
    return pb.CallServed(
        party=served.party,
        method=served.method,
        caller=_caller_to_wire(served.caller),
        number=served.number,
        serving=served.serving,
        pool=served.pool,
        since=served.since,
        deadline=served.deadline,
        sent=served.sent,
        received=served.received,
        taken=served.taken,
        interruptible=served.interruptible,
        hung_up=served.hung_up,
    )


def _served_from_wire(own: ProcessName, message: pb.CallServed) -> ServedCall:
    return ServedCall(
        party=_own(own, "served.party", message.party),
        method=message.method,
        caller=_caller_from_wire(message.caller) if message.HasField("caller") else None,
        number=CallNumber(_number("served.number", message.number)),
        serving=message.serving,
        pool=message.pool,
        since=_time("served.since", message.since) if message.HasField("since") else None,
        deadline=_time("served.deadline", message.deadline) if message.HasField("deadline") else None,
        sent=message.sent,
        received=message.received,
        taken=message.taken,
        interruptible=message.interruptible,
        hung_up=message.hung_up,
    )


def _seen_to_wire(seen: Seen) -> pb.Seen:
    message = pb.Seen(caller=_caller_to_wire(seen.caller), highest=seen.highest, forgotten=seen.forgotten, plain=seen.plain)
    for answered in seen.answered:
        entry = message.answered.add(
            number=answered.number, sent=answered.sent, received=answered.received, untaken=not answered.taken
        )
        _put_facts(entry.facts, answered.facts)
    return message


def _seen_from_wire(message: pb.Seen) -> Seen:
    plain = tuple(sorted(map(CallNumber, message.plain)))
    answered = tuple(
        Answered(
            number=CallNumber(entry.number),
            sent=entry.sent,
            received=entry.received,
            facts=facts_from_wire(entry.facts),
            taken=not entry.untaken,
        )
        for entry in message.answered
    )
    highest = _number("seen.highest", message.highest)
    if (plain and plain[-1] > highest) or any(entry.number > highest for entry in answered):
        raise MalformedError(f"seen.answered: a number above the highest seen ({highest})")
    return Seen(
        caller=_caller_from_wire(message.caller),
        highest=CallNumber(highest),
        forgotten=CallNumber(message.forgotten),
        answered=tuple(sorted(answered, key=attrgetter("number"))),
        plain=plain,
    )


def _pool_from_wire(message: pb.Pool) -> Pool:
    return Pool(name=message.name, size=message.size if message.HasField("size") else None, queued=message.queued)


def _wait_to_wire(wait: LocalWait) -> pb.LocalWait:
    return pb.LocalWait(
        waiter=wait.waiter,
        number=wait.number,
        among=map(_target_to_wire, wait.among),
        needs=wait.needs,
        deadline=wait.deadline,
        since=wait.since,
        uncoloured=wait.uncoloured,
        what=wait.what,
    )


def _wait_from_wire(own: ProcessName, message: pb.LocalWait) -> LocalWait:
    if not 1 <= message.needs <= len(message.among):
        raise MalformedError(f"waits.needs: {message.needs} of {len(message.among)} targets")
    return LocalWait(
        waiter=_own(own, "waits.waiter", message.waiter),
        number=WaitNumber(_number("waits.number", message.number)),
        among=tuple(_target_from_wire(own, target) for target in message.among),
        needs=message.needs,
        deadline=_time("waits.deadline", message.deadline) if message.HasField("deadline") else None,
        since=_time("waits.since", message.since) if message.HasField("since") else None,
        uncoloured=message.uncoloured,
        what=message.what,
    )


def _target_to_wire(target: Target) -> pb.Target:
    match target:
        case PartyTarget():
            return pb.Target(party=target.party)
        case CallTarget():
            return pb.Target(call=target.number)
        case ResourceTarget():
            return pb.Target(resource=target.resource)
        case CallerTarget():
            return pb.Target(served=target.served)
        case _:
            assert_never(target)


def _target_from_wire(own: ProcessName, message: pb.Target) -> Target:
    match message.WhichOneof("target"):
        case "party":
            if not message.party:
                raise MalformedError("waits.among.party: empty")
            return PartyTarget(party=PartyName(message.party))
        case "call":
            return CallTarget(number=CallNumber(_number("waits.among.call", message.call)))
        case "resource":
            return ResourceTarget(resource=message.resource)
        case "served":
            return CallerTarget(served=_own(own, "waits.among.served", message.served))
        case _:
            raise MalformedError("waits.among: a target of no kind")


# -- verdicts ----------------------------------------------------------------------------------------------------------


def verdict_to_wire(verdict: Verdict) -> pb.Verdict:
    """A predicate's answer."""
    return pb.Verdict(
        predicate=verdict.predicate,
        holds=_HOLDS_TO_WIRE[verdict.holds],
        witness=pb.Witness(kind=verdict.witness.kind, parties=verdict.witness.parties, text=verdict.witness.text),
        snapshot=snapshot_to_wire(verdict.snapshot),
        remainder=verdict.remainder,
        core=verdict.core,
        behind=verdict.behind,
        missing=verdict.missing,
        decisive=verdict.decisive,
        until=verdict.until,
        explanation=verdict.explanation,
        victims=verdict.victims,
        evidence=(pb.Evidence(party=e.party, stack=e.stack, trace=e.trace) for e in verdict.evidence),
        assumptions=verdict.assumptions,
        coverage=None if verdict.coverage is None else _coverage_to_wire(verdict.coverage),
    )


def verdict_from_wire(message: pb.Verdict) -> Verdict:
    """A predicate's answer; one of no kind reads as undetermined."""
    return Verdict(
        predicate=message.predicate,
        holds=_HOLDS_FROM_WIRE.get(message.holds, Holds.UNDETERMINED),
        witness=Witness(kind=message.witness.kind, parties=_parties(message.witness.parties), text=message.witness.text),
        snapshot=snapshot_from_wire(message.snapshot),
        remainder=_parties(message.remainder),
        core=_parties(message.core),
        behind=_parties(message.behind),
        missing=tuple(map(ProcessName, message.missing)),
        decisive=tuple(map(ProcessName, message.decisive)),
        until=_time("until", message.until) if message.HasField("until") else None,
        explanation=tuple(message.explanation),
        victims=_parties(message.victims),
        evidence=tuple(Evidence(party=PartyName(e.party), stack=tuple(e.stack), trace=e.trace) for e in message.evidence),
        assumptions=tuple(message.assumptions),
        coverage=_coverage_from_wire(message.coverage) if message.HasField("coverage") else None,
    )


def _coverage_to_wire(coverage: Coverage) -> pb.Coverage:
    def spots(blind: tuple[BlindSpot, ...]) -> list[pb.BlindSpot]:
        return [pb.BlindSpot(process=spot.process, reasons=spot.reasons) for spot in blind]

    return pb.Coverage(
        members=coverage.members,
        expected=coverage.expected,
        blind=spots(coverage.blind),
        partly=spots(coverage.partly),
    )


def _coverage_from_wire(message: pb.Coverage) -> Coverage:
    def spots(blind: Iterable[pb.BlindSpot]) -> tuple[BlindSpot, ...]:
        return tuple(BlindSpot(process=ProcessName(spot.process), reasons=tuple(spot.reasons)) for spot in blind)

    return Coverage(
        members=message.members, expected=message.expected, blind=spots(message.blind), partly=spots(message.partly)
    )


def snapshot_to_wire(ref: SnapshotRef) -> pb.SnapshotRef:
    """Which snapshot a verdict is about."""
    return pb.SnapshotRef(id=ref.id, scope=ref.scope, begun=ref.begun, ended=ref.ended, members=ref.members)


def snapshot_from_wire(message: pb.SnapshotRef) -> SnapshotRef:
    """Which snapshot a verdict is about."""
    return SnapshotRef(
        id=SnapshotId(message.id) if message.HasField("id") else None,
        scope=message.scope,
        begun=message.begun if message.HasField("begun") else None,
        ended=message.ended if message.HasField("ended") else None,
        members=message.members,
    )


# -- checks ------------------------------------------------------------------------------------------------------------


def _parties(names: Iterable[str]) -> tuple[PartyName, ...]:
    return tuple(map(PartyName, names))


def _own(process: ProcessName, field: str, name: str) -> PartyName:
    party = PartyName(name)
    if process_of(party) != process:
        raise MalformedError(f"{field}: {name!r} is no party of {process}")
    return party


def _number(field: str, value: int, highest: int = NUMBER_MAX) -> int:
    if value > highest:
        raise MalformedError(f"{field}: {value} is above {highest}")
    return value


def _time(field: str, value: float) -> float:
    if not math.isfinite(value):
        raise MalformedError(f"{field}: {value} is no time")
    return value
