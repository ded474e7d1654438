"""Decodes the archive's rows to snapshots and verdicts equal to those written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detector.archive.rows.local_state_rows import Row, facts_of
from detector.core.membership_doubt import About, MembershipDoubt
from detector.core.snapshot import Snapshot
from detector.graph.columns import NO_NUMBER, Floats, WaitColumns
from stilltrue.model import (
    Activity,
    Holds,
    Message,
    PartyName,
    ProcessName,
    ProcessState,
    SnapshotId,
    SnapshotRef,
    Verdict,
    Witness,
)


def snapshot_of(row: Mapping[str, Any]) -> Snapshot:
    """Decode a row of ``snapshots``."""
    return Snapshot(
        ref=ref_of(row),
        processes={ProcessName(state["process"]): _state(state) for state in row["processes"] or ()},
        waits=waits_of(row["waits"]),
        in_transit=tuple(map(_message, row["in_transit"] or ())),
        missing=tuple(ProcessName(member["instance"]) for member in row["missing"] or ()),
        forgetful=tuple(map(ProcessName, row["forgetful"] or ())),
        doubts={ProcessName(name): doubt for name, _, doubt in (text.partition(" ") for text in row["doubts"] or ())},
        membership=tuple(map(_membership_doubt, row["membership"] or ())),
    )


def _membership_doubt(row: Row) -> MembershipDoubt:
    return MembershipDoubt(
        about=About(row["about"]),
        predicate=row["predicate"] or "",
        text=row["text"] or "",
        decisive=tuple(map(ProcessName, row["decisive"] or ())),
    )


def ref_of(row: Mapping[str, Any]) -> SnapshotRef:
    """Return the reference of a row's snapshot."""
    number = row["snapshot"]
    return SnapshotRef(
        id=None if number is None else SnapshotId(number),
        scope=row["scope"],
        begun=row["begun"],
        ended=row["ended"],
        members=row["members"],
    )


def waits_of(row: Row) -> WaitColumns:
    """Decode the column ``waits`` of a row."""
    sizes = np.asarray(row["sizes"], np.int32)
    count = len(sizes)
    indptr = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=indptr[1:])
    numbers = [NO_NUMBER if number is None else number for number in row["number"] or [None] * count]
    return WaitColumns(
        names=tuple(map(PartyName, row["names"])),
        waiter=np.asarray(row["waiter"], np.int32),
        needs=np.asarray(row["needs"], np.int32),
        indptr=indptr,
        targets=np.asarray(row["targets"], np.int32),
        deadline=_times(row["deadline"], count),
        since=_times(row["since"], count),
        number=np.asarray(numbers, np.int64),
        uncoloured=np.asarray(row["uncoloured"] or [False] * count, np.bool_),
        what=tuple(row["what"] or ()),
    )


def verdict_of(row: Mapping[str, Any]) -> Verdict:
    """Decode a row of ``verdicts``."""
    return Verdict(
        predicate=row["predicate"],
        holds=Holds(row["holds"]),
        witness=Witness(kind=row["witness_kind"], parties=_parties(row["witness_parties"]), text=row["witness_text"]),
        snapshot=ref_of(row),
        remainder=_parties(row["remainder"]),
        core=_parties(row["core"]),
        behind=_parties(row["behind"]),
        missing=tuple(map(ProcessName, row["missing"])),
        decisive=tuple(map(ProcessName, row["decisive"])),
        until=row["until"],
        explanation=tuple(row["explanation"]),
        victims=_parties(row["victims"]),
    )


def _state(row: Row) -> ProcessState:
    return ProcessState(
        activity=Activity(row["activity"]),
        facts=facts_of(row["facts"]),
        service=row["service"],
        labels=dict(row["labels"] or ()),
    )


def _message(row: Row) -> Message:
    target = row["target"]
    return Message(
        source=ProcessName(row["source"]),
        target=None if target is None else ProcessName(target),
        facts=facts_of(row["facts"]),
        what=row["what"],
    )


def _parties(names: Sequence[str]) -> tuple[PartyName, ...]:
    return tuple(map(PartyName, names))


def _times(values: Sequence[float | None] | None, count: int) -> Floats:
    return np.full(count, np.nan) if values is None else np.asarray(list(map(_nan, values)), np.float64)


def _nan(value: float | None) -> float:
    return np.nan if value is None else value
