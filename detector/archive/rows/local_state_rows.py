"""Encodes one process's report as a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from stilltrue.model import NO_FACTS, Fact, Facts
from stilltrue.protocol.report import (
    Caller,
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

Row = dict[str, Any]

MADE = ("number", "method", "target", "strangers", "party", "since", "deadline", "sent", "received", "doubtful")
SERVED = ("party", "method", "number", "serving", "pool", "since", "deadline", "sent", "received", "taken")
MADE_LATER: Row = {"copies_max": 1, "hedged": False}
SERVED_LATER: Row = {"interruptible": False, "hung_up": False}
"""Fields added in schema version 3, and their values in older files."""


def facts_row(facts: Facts) -> list[tuple[str, Row]]:
    """Convert facts to a map's entries."""
    return [(name, _fact_row(value)) for name, value in facts.items()]


def facts_of(entries: Iterable[tuple[str, Row]] | None) -> Facts:
    """Convert a map's entries to facts."""
    if not entries:
        return NO_FACTS
    return {name: _fact(row) for name, row in entries}


def report_columns(report: Report) -> Row:
    """Return the columns of one report."""
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
        "seen": [seen_row(seen) for seen in report.seen],
        "pools": [{"name": pool.name, "size": pool.size, "queued": pool.queued} for pool in report.pools],
        "waits": [_wait_row(wait) for wait in report.waits],
        "holds": [{"party": hold.party, "resource": hold.resource, "capacity": hold.capacity} for hold in report.holds],
        "facts": facts_row(report.facts),
        "labels": list(report.labels.items()),
        "lost": report.lost,
    }


def _fact_row(value: Fact) -> Row:
    kind = {bool: "truth", int: "whole", float: "real", str: "text"}[type(value)]
    return {kind: value}


def _fact(row: Row) -> Fact:
    for kind in ("whole", "real", "text", "truth"):
        value: Fact | None = row.get(kind)
        if value is not None:
            return value
    return ""


def _made_row(made: OutstandingCall) -> Row:
    row = {name: getattr(made, name) for name in (*MADE, *MADE_LATER)}
    return row | {"servers": list(made.servers.items()), "facts": facts_row(made.facts)}


def _caller_row(caller: Caller | None) -> Row | None:
    return None if caller is None else {"process": caller.process, "incarnation": caller.incarnation}


def _served_row(served: ServedCall) -> Row:
    return {name: getattr(served, name) for name in (*SERVED, *SERVED_LATER)} | {"caller": _caller_row(served.caller)}


def seen_row(seen: Seen) -> Row:
    """Encode a server's memory of one caller."""
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
