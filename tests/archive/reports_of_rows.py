"""The report that an archived row holds: what the columns of a local state mean, read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detector.archive.rows.local_state_rows import MADE, MADE_LATER, SERVED, SERVED_LATER, Row, facts_of
from stilltrue.model import Activity, CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
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


def _made(row: Row) -> OutstandingCall:
    known = {name: row[name] for name in MADE} | _later(row, MADE_LATER)
    return OutstandingCall(**known, servers=dict(row["servers"] or ()), facts=facts_of(row["facts"]))


def _caller(row: Row) -> Caller:
    return Caller(ProcessName(row["process"]), row["incarnation"])


def _served(row: Row) -> ServedCall:
    caller = None if row["caller"] is None else _caller(row["caller"])
    return ServedCall(**{name: row[name] for name in SERVED}, **_later(row, SERVED_LATER), caller=caller)


def _later(row: Row, absent: Row) -> Row:
    """The columns that older files lack, with what their absence means."""
    return {name: value if (known := row.get(name)) is None else known for name, value in absent.items()}


def _seen(row: Row) -> Seen:
    answered = (Answered(**(entry | {"facts": facts_of(entry["facts"])})) for entry in row["answered"] or ())
    return Seen(
        caller=_caller(row["caller"]),
        highest=row["highest"],
        forgotten=row["forgotten"],
        answered=tuple(answered),
        plain=tuple(row["plain"] or ()),
    )


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


def _target(row: Row) -> Target:
    if row["party"] is not None:
        return PartyTarget(party=PartyName(row["party"]))
    if row["call"] is not None:
        return CallTarget(number=CallNumber(row["call"]))
    if row["resource"] is not None:
        return ResourceTarget(resource=row["resource"])
    return CallerTarget(served=PartyName(row["served"]))
