"""Converts reports to protobuf and back."""

from __future__ import annotations

from operator import attrgetter

from stilltrue.model import Activity, CallNumber, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.report import (
    Answered,
    Caller,
    CallerTarget,
    CallTarget,
    Connection,
    HeldUp,
    Hold,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Pool,
    Report,
    ResourceTarget,
    Seen,
    SentOver,
    ServedCall,
    Target,
)
from stilltrue.protocol.stamp import INCARNATION_MAX
from stilltrue.protocol.wire.values import (
    MalformedError,
    any_party,
    checked_number,
    checked_time,
    deadline_to_wire,
    facts_from_wire,
    own_party,
    process_from_wire,
    process_to_wire,
    put_facts,
)
from stilltrue.v1 import snapshot_pb2 as pb

_ACTIVITY_TO_WIRE = {
    Activity.ACTIVE: pb.ACTIVITY_ACTIVE,
    Activity.IDLE: pb.ACTIVITY_IDLE,
    Activity.BLOCKED: pb.ACTIVITY_BLOCKED,
}
_ACTIVITY_FROM_WIRE = {number: activity for activity, number in _ACTIVITY_TO_WIRE.items()}


def report_to_wire(report: Report) -> pb.Report:
    """Convert one process's local state."""
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
        sent_over=map(_sent_over_to_wire, report.sent_over),
        held_up=map(_held_up_to_wire, report.held_up),
    )
    put_facts(message.facts, report.facts)
    return message


def report_from_wire(message: pb.Report) -> Report:
    """Convert one process's local state back; it may only name parties of its own process."""
    process = process_from_wire(message.process)
    own = process.instance
    if message.snapshot <= message.after:
        raise MalformedError(f"snapshot: {message.snapshot} is not above after ({message.after})")
    return Report(
        process=process,
        snapshot=SnapshotId(checked_number("snapshot", message.snapshot)),
        after=SnapshotId(message.after),
        cut_at=checked_time("cut_at", message.cut_at),
        next_number=CallNumber(checked_number("next_number", message.next_number)),
        activity=activity_from_wire(message.activity),
        made=tuple(_made_from_wire(own, made) for made in message.made),
        served=tuple(_served_from_wire(own, served) for served in message.served),
        seen=tuple(map(_seen_from_wire, message.seen)),
        pools=tuple(_pool_from_wire(pool) for pool in message.pools),
        waits=tuple(_wait_from_wire(own, wait) for wait in message.waits),
        holds=tuple(
            Hold(party=own_party(own, "holds.party", h.party), resource=h.resource, capacity=max(1, h.capacity))
            for h in message.holds
        ),
        facts=facts_from_wire(message.facts),
        labels=dict(message.labels),
        lost=message.lost,
        happenings=message.happenings,
        sent_over=tuple(map(_sent_over_from_wire, message.sent_over)),
        held_up=tuple(_held_up_from_wire(own, one) for one in message.held_up),
    )


def activity_from_wire(number: pb.Activity) -> Activity:
    """Convert an activity back; unknown values count as active."""
    return _ACTIVITY_FROM_WIRE.get(number, Activity.ACTIVE)


def _made_to_wire(made: OutstandingCall) -> pb.CallMade:
    message = pb.CallMade(
        number=made.number,
        method=made.method,
        target=made.target,
        servers={str(name): incarnation for name, incarnation in made.servers.items()},
        strangers=made.strangers,
        party=made.party,
        since=made.since,
        deadline=deadline_to_wire(made.deadline),
        sent=made.sent,
        received=made.received,
        doubtful=made.doubtful,
        copies_max=0 if made.copies_max == 1 else made.copies_max,
        hedged=made.hedged,
    )
    if made.facts:
        put_facts(message.facts, made.facts)
    return message


def _made_from_wire(own: ProcessName, message: pb.CallMade) -> OutstandingCall:
    return OutstandingCall(
        number=CallNumber(checked_number("made.number", message.number)),
        method=message.method,
        target=message.target,
        servers={ProcessName(name): incarnation for name, incarnation in message.servers.items()},
        strangers=message.strangers,
        party=own_party(own, "made.party", message.party) if message.HasField("party") else None,
        since=checked_time("made.since", message.since) if message.HasField("since") else None,
        deadline=checked_time("made.deadline", message.deadline) if message.HasField("deadline") else None,
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
    return Caller(ProcessName(message.process), checked_number("caller.incarnation", message.incarnation, INCARNATION_MAX))


def _served_to_wire(served: ServedCall) -> pb.CallServed:
    return pb.CallServed(
        party=served.party,
        method=served.method,
        caller=_caller_to_wire(served.caller),
        number=served.number,
        serving=served.serving,
        pool=served.pool,
        since=served.since,
        deadline=deadline_to_wire(served.deadline),
        sent=served.sent,
        received=served.received,
        taken=served.taken,
        interruptible=served.interruptible,
        hung_up=served.hung_up,
    )


def _served_from_wire(own: ProcessName, message: pb.CallServed) -> ServedCall:
    return ServedCall(
        party=own_party(own, "served.party", message.party),
        method=message.method,
        caller=_caller_from_wire(message.caller) if message.HasField("caller") else None,
        number=CallNumber(checked_number("served.number", message.number)),
        serving=message.serving,
        pool=message.pool,
        since=checked_time("served.since", message.since) if message.HasField("since") else None,
        deadline=checked_time("served.deadline", message.deadline) if message.HasField("deadline") else None,
        sent=message.sent,
        received=message.received,
        taken=message.taken,
        interruptible=message.interruptible,
        hung_up=message.hung_up,
    )


def _seen_to_wire(seen: Seen) -> pb.Seen:
    message = pb.Seen(
        caller=_caller_to_wire(seen.caller),
        highest=seen.highest,
        forgotten=seen.forgotten,
        floor=seen.floor,
        plain=seen.plain,
    )
    for answered in seen.answered:
        entry = message.answered.add(
            number=answered.number, sent=answered.sent, received=answered.received, untaken=not answered.taken
        )
        put_facts(entry.facts, answered.facts)
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
    highest = checked_number("seen.highest", message.highest)
    if (plain and plain[-1] > highest) or any(entry.number > highest for entry in answered):
        raise MalformedError(f"seen.answered: a number above the highest seen ({highest})")
    return Seen(
        caller=_caller_from_wire(message.caller),
        highest=CallNumber(highest),
        forgotten=CallNumber(message.forgotten),
        floor=CallNumber(message.floor),
        answered=tuple(sorted(answered, key=attrgetter("number"))),
        plain=plain,
    )


def _pool_from_wire(message: pb.Pool) -> Pool:
    return Pool(name=message.name, size=message.size if message.HasField("size") else None, queued=message.queued)


def _connection_to_wire(one: Connection) -> pb.Connection:
    return pb.Connection(name=one.name, socket=one.socket, begun=one.begun, ended=one.ended)


def _connection_from_wire(message: pb.Connection) -> Connection:
    return Connection(name=message.name, socket=message.socket, begun=message.begun, ended=message.ended)


def _sent_over_to_wire(sent: SentOver) -> pb.SentOver:
    return pb.SentOver(call=sent.call, connections=map(_connection_to_wire, sent.connections))


def _sent_over_from_wire(message: pb.SentOver) -> SentOver:
    return SentOver(
        call=CallNumber(checked_number("sent_over.call", message.call)),
        connections=tuple(map(_connection_from_wire, message.connections)),
    )


def _held_up_to_wire(held: HeldUp) -> pb.HeldUp:
    connection = _connection_to_wire(held.connection)
    return pb.HeldUp(connection=connection, parties=held.parties, full=held.full, what=held.what)


def _held_up_from_wire(own: ProcessName, message: pb.HeldUp) -> HeldUp:
    return HeldUp(
        connection=_connection_from_wire(message.connection),
        parties=tuple(own_party(own, "held_up.parties", party) for party in message.parties),
        full=message.full,
        what=message.what,
    )


def _wait_to_wire(wait: LocalWait) -> pb.LocalWait:
    return pb.LocalWait(
        waiter=wait.waiter,
        number=wait.number,
        among=map(_target_to_wire, wait.among),
        needs=wait.needs,
        deadline=deadline_to_wire(wait.deadline),
        since=wait.since,
        uncoloured=wait.uncoloured,
        what=wait.what,
    )


def _wait_from_wire(own: ProcessName, message: pb.LocalWait) -> LocalWait:
    if not 1 <= message.needs <= len(message.among):
        raise MalformedError(f"waits.needs: {message.needs} of {len(message.among)} targets")
    return LocalWait(
        waiter=own_party(own, "waits.waiter", message.waiter),
        number=WaitNumber(checked_number("waits.number", message.number)),
        among=tuple(_target_from_wire(own, target) for target in message.among),
        needs=message.needs,
        deadline=checked_time("waits.deadline", message.deadline) if message.HasField("deadline") else None,
        since=checked_time("waits.since", message.since) if message.HasField("since") else None,
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


def _target_from_wire(own: ProcessName, message: pb.Target) -> Target:
    match message.WhichOneof("target"):
        case "party":
            return PartyTarget(party=any_party("waits.among.party", message.party))
        case "call":
            return CallTarget(number=CallNumber(checked_number("waits.among.call", message.call)))
        case "resource":
            return ResourceTarget(resource=message.resource)
        case "served":
            return CallerTarget(served=own_party(own, "waits.among.served", message.served))
        case _:
            raise MalformedError("waits.among: a target without a kind")
