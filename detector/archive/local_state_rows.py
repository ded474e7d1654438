"""One process's report to its row and back: the columns of its local state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from stilltrue.model import (
    NO_FACTS,
    Activity,
    CallNumber,
    Fact,
    Facts,
    PartyName,
    ProcessId,
    ProcessName,
    SnapshotId,
    WaitNumber,
)
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

Row = dict[str, Any]

MADE = ("number", "method", "target", "strangers", "party", "since", "deadline", "sent", "received", "doubtful")
SERVED = ("party", "method", "number", "serving", "pool", "since", "deadline", "sent", "received", "taken")
MADE_LATER: Row = {"copies_max": 1, "hedged": False}
SERVED_LATER: Row = {"interruptible": False, "hung_up": False}
"""Columns of schema version 3, and what their absence means."""


def facts_row(facts: Facts) -> list[tuple[str, Row]]:
    """Facts as a map's entries."""
    return [(name, _fact_row(value)) for name, value in facts.items()]


def facts_of(entries: Iterable[tuple[str, Row]] | None) -> Facts:
    """Facts from a map's entries."""
    if not entries:
        return NO_FACTS
    return {name: _fact(row) for name, row in entries}


def report_columns(report: Report) -> Row:
    """The columns of one report."""
    return {
        "service": report.process.service,
        "process": report.process.instance,
        "incarnation": report.process.incarnation,
        "cut_for": report.snapshot,
        "after": report.after,
        "cut_at": report.cut_at,
        "next_number": report.next_number,
        "activity": report.activity.value,
        "made": [_made_row(made) for made in report.made],
        "served": [_served_row(served) for served in report.served],
        "seen": [_seen_row(seen) for seen in report.seen],
        "pools": [{"name": pool.name, "size": pool.size, "queued": pool.queued} for pool in report.pools],
        "waits": [_wait_row(wait) for wait in report.waits],
        "holds": [{"party": hold.party, "resource": hold.resource, "capacity": hold.capacity} for hold in report.holds],
        "facts": facts_row(report.facts),
        "labels": list(report.labels.items()),
        "lost": report.lost,
    }


def report_of(row: Mapping[str, Any]) -> Report:
    """The report that a row says."""
    return Report(
        process=ProcessId(service=row["service"], instance=ProcessName(row["process"]), incarnation=row["incarnation"]),
        snapshot=SnapshotId(row["cut_for"]),
        after=SnapshotId(row["after"]),
        cut_at=row["cut_at"],
        next_number=CallNumber(row["next_number"]),
        activity=Activity(row["activity"]),
        made=tuple(map(_made, row["made"] or ())),
        served=tuple(map(_served, row["served"] or ())),
        seen=tuple(map(_seen, row["seen"] or ())),
        pools=tuple(Pool(**pool) for pool in row["pools"] or ()),
        waits=tuple(map(_wait, row["waits"] or ())),
        holds=tuple(Hold(**hold) for hold in row["holds"] or ()),
        facts=facts_of(row["facts"]),
        labels=dict(row["labels"] or ()),
        lost=row["lost"],
    )


def _fact_row(value: Fact) -> Row:
    kind = {bool: "truth", int: "whole", float: "real", str: "text"}[type(value)]
    return {kind: value}


def _fact(row: Row) -> Fact:
    for kind in ("whole", "real", "text", "truth"):
        value: Fact | None = row[kind]
        if value is not None:
            return value
    return ""


def _made_row(made: OutstandingCall) -> Row:
    row = {name: getattr(made, name) for name in (*MADE, *MADE_LATER)}
    return row | {"servers": list(made.servers.items()), "facts": facts_row(made.facts)}


def _made(row: Row) -> OutstandingCall:
    known = {name: row[name] for name in MADE} | _later(row, MADE_LATER)
    return OutstandingCall(**known, servers=dict(row["servers"] or ()), facts=facts_of(row["facts"]))


def _caller_row(caller: Caller | None) -> Row | None:
    return None if caller is None else {"process": caller.process, "incarnation": caller.incarnation}


def _caller(row: Row) -> Caller:
    return Caller(ProcessName(row["process"]), row["incarnation"])


def _served_row(served: ServedCall) -> Row:
    return {name: getattr(served, name) for name in (*SERVED, *SERVED_LATER)} | {"caller": _caller_row(served.caller)}


def _served(row: Row) -> ServedCall:
    caller = None if row["caller"] is None else _caller(row["caller"])
    return ServedCall(**{name: row[name] for name in SERVED}, **_later(row, SERVED_LATER), caller=caller)


def _later(row: Row, absent: Row) -> Row:
    """The columns that older files lack, with what their absence means."""
    return {name: value if (known := row.get(name)) is None else known for name, value in absent.items()}


def _seen_row(seen: Seen) -> Row:
    return {
        "caller": _caller_row(seen.caller),
        "highest": seen.highest,
        "forgotten": seen.forgotten,
        "answered": [
            {
                "number": answered.number,
                "sent": answered.sent,
                "received": answered.received,
                "facts": facts_row(answered.facts),
                "taken": answered.taken,
            }
            for answered in seen.answered
        ],
        "plain": seen.plain,
    }


def _seen(row: Row) -> Seen:
    answered = (Answered(**(entry | {"facts": facts_of(entry["facts"])})) for entry in row["answered"] or ())
    return Seen(
        caller=_caller(row["caller"]),
        highest=row["highest"],
        forgotten=row["forgotten"],
        answered=tuple(answered),
        plain=tuple(row["plain"] or ()),
    )


def _wait_row(wait: LocalWait) -> Row:
    return {
        "waiter": wait.waiter,
        "number": wait.number,
        "among": [_target_row(target) for target in wait.among],
        "needs": wait.needs,
        "deadline": wait.deadline,
        "since": wait.since,
        "uncoloured": wait.uncoloured,
        "what": wait.what,
    }


def _wait(row: Row) -> LocalWait:
    return LocalWait(
        waiter=PartyName(row["waiter"]),
        number=WaitNumber(row["number"]),
        among=tuple(map(_target, row["among"])),
        needs=row["needs"],
        deadline=row["deadline"],
        since=row["since"],
        uncoloured=row["uncoloured"],
        what=row["what"],
    )


def _target_row(target: Target) -> Row:
    match target:
        case PartyTarget():
            return {"party": target.party}
        case CallTarget():
            return {"call": target.number}
        case ResourceTarget():
            return {"resource": target.resource}
        case CallerTarget():
            return {"served": target.served}
        case _:
            assert_never(target)


def _target(row: Row) -> Target:
    if row["party"] is not None:
        return PartyTarget(party=PartyName(row["party"]))
    if row["call"] is not None:
        return CallTarget(number=CallNumber(row["call"]))
    if row["resource"] is not None:
        return ResourceTarget(resource=row["resource"])
    return CallerTarget(served=PartyName(row["served"]))
