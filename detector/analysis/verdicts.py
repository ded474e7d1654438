"""Predicates over many archived snapshots at once: the service's verdicts, with one run of the reduction for a whole batch.

``deadlock`` and ``gridlock`` begin with the most pessimistic reduction. Run over all snapshots together it leaves no party
over in most of them: their FALSE is then written by the predicate's own words. Every other snapshot, and every other
predicate, is asked one snapshot at a time, as in the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.disjoint_union import Stacked, stacked
from detector.analysis.findings.near_misses import FINDINGS, cores, near_misses
from detector.archive.rows.list_columns import lengths, whole
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.row_decoder import ref_of, snapshot_of
from detector.archive.rows.row_encoder import verdict_row
from detector.archive.rows.schema import SNAPSHOTS, VERDICTS
from detector.core.answer import nobody_reported, undetermined
from detector.core.predicate import Predicate, reads_activity, treats_forgotten
from detector.core.protocol.assembler import Outcome
from detector.core.registry import PluginError, ask
from detector.core.snapshot import Snapshot
from detector.graph.columns import Bools
from detector.graph.reduction import reduce
from detector.predicates.deadlock import Deadlock
from detector.predicates.evidence.blocked import blocked_verdict
from detector.predicates.gridlock import Gridlock
from stilltrue.model import Holds, Verdict

WAIT_COLUMNS = (
    "archive",
    "snapshot",
    "scope",
    "begun",
    "ended",
    "members",
    "outcome",
    "missing",
    "waits",
    "membership",
)
"""The columns of ``snapshots`` that ``deadlock`` and ``gridlock`` need."""


FOUND = pa.schema([*VERDICTS, ("findings", FINDINGS)])
"""The columns of ``verdicts`` and what an analysis wants to know beyond them."""


def columns_for(predicates: Sequence[Predicate]) -> tuple[str, ...]:
    """The columns of ``snapshots`` that ``predicates`` need: of those that only look at waits, few."""
    return WAIT_COLUMNS if all(_over(predicate) for predicate in predicates) else tuple(SNAPSHOTS.names)


def verdicts_on(snapshots: pa.Table, predicates: Sequence[Predicate], *, findings: bool = False) -> pa.Table:
    """The verdicts of ``predicates`` on rows of ``snapshots`` (with at least :func:`columns_for`).

    Returns
    -------
    pyarrow.Table
        Rows of ``verdicts``, by snapshot as they came, then in the order of ``predicates``. A rejected snapshot has none. A
        predicate that fails answers UNDETERMINED with a witness of kind ``failed``, and hurts no other answer. With
        ``findings`` they are those of :data:`FOUND`: cores and near misses stand with the verdict of ``deadlock``.
    """
    wanted = pa.array([outcome != Outcome.REJECTED.value for outcome in snapshots.column("outcome").to_pylist()], pa.bool_())
    kept = snapshots.filter(wanted)
    if not kept.num_rows:
        return (FOUND if findings else VERDICTS).empty_table()
    together = stacked(kept)
    rows = _Rows(kept)
    answers = [_answers(predicate, together, rows) for predicate in predicates]
    whose = kept.column("archive").to_pylist() if "archive" in kept.column_names else [None] * kept.num_rows
    found = [
        verdict_row(verdict) | {"archive": archive}
        for archive, *verdicts in zip(whose, *answers, strict=True)
        for verdict in verdicts
    ]
    if "absent" in kept.column_names:
        _doubted(found, kept.column("absent").to_pylist(), len(predicates))
        _without_headers(found, kept.column("headless").to_pylist(), predicates)
    if not findings:
        return pa.Table.from_pylist(found, schema=VERDICTS)
    for at, predicate in enumerate(predicates):
        if predicate.name == "deadlock":
            _find(found[at :: len(predicates)], together, rows)
    return pa.Table.from_pylist(found, schema=FOUND)


def _doubted(verdicts: Sequence[Row], absent: Sequence[Sequence[str] | None], predicates: int) -> None:
    """No FALSE on a snapshot some of whose reports are not here: they may be what would have made it true."""
    for at, row in enumerate(verdicts):
        names = absent[at // predicates]
        if names and row["holds"] == Holds.FALSE.value:
            named = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            text = f"not known: there is no report from {named}, on which the answer may depend"
            row |= {"holds": Holds.UNDETERMINED.value, "witness_kind": "missing", "witness_text": text}
            row |= {"witness_parties": [], "explanation": [], "decisive": list(names)}


def _without_headers(verdicts: Sequence[Row], headless: Sequence[bool | None], predicates: Sequence[Predicate]) -> None:
    """No answer rests on what a header that is not here may deny: that nothing was forgotten, and that the idle stay idle."""
    for at, row in enumerate(verdicts):
        predicate = predicates[at % len(predicates)]
        doubted = reads_activity(predicate) and row["holds"] == Holds.TRUE.value
        if headless[at // len(predicates)] and row["witness_kind"] != "failed" and (doubted or not treats_forgotten(predicate)):
            text = (
                f"not known: the row of snapshot {row['snapshot']} in `snapshots` is not here, and the answer may depend on it"
            )
            row |= {"holds": Holds.UNDETERMINED.value, "witness_kind": "missing", "witness_text": text}
            row |= {"witness_parties": [], "explanation": [], "remainder": [], "core": [], "behind": [], "victims": []}


def _find(verdicts: Sequence[Row], together: Stacked, rows: _Rows) -> None:
    """Put the findings into the rows of ``deadlock``'s verdicts, one for each snapshot."""
    free = np.asarray([row["holds"] == Holds.FALSE.value for row in verdicts], np.bool_)
    for at, near in near_misses(together, free).items():
        verdicts[at]["findings"] = near
    for at, row in enumerate(verdicts):
        if row["holds"] == Holds.TRUE.value:
            row["findings"] = cores(row["predicate"], row["core"], rows.row(at))


class _Rows:
    """The rows of a batch as nouns: cheap ones with the waits alone, whole ones when they are asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._missing_columns = [name for name in SNAPSHOTS.names if name not in table.column_names]
        self._refs = [ref_of(row) for row in table.select(["snapshot", "scope", "begun", "ended", "members"]).to_pylist()]
        self._whole: dict[int, Snapshot] = {}
        absent = lengths(whole(table.column("missing")))
        members = pc.fill_null(whole(table.column("members")), -1).to_numpy(zero_copy_only=False)
        self.nobody = members == absent
        """(S,) the snapshots for which no member has reported."""
        self.special = self.nobody | (lengths(whole(table.column("membership"))) > 0)
        """(S,) those, and the snapshots on which the membership withheld answers."""

    def whole(self, at: int) -> Snapshot:
        """The snapshot, as the service saw it."""
        if at not in self._whole:
            self._whole[at] = snapshot_of(self.row(at))
        return self._whole[at]

    def row(self, at: int) -> Row:
        """The snapshot's row; None in the columns that were not read."""
        row: Row = dict.fromkeys(self._missing_columns) | self._table.slice(at, 1).to_pylist()[0]
        return row

    def waits_only(self, at: int, together: Stacked) -> Snapshot:
        """The snapshot without processes and messages, its names still in Arrow."""
        return Snapshot(ref=self._refs[at], waits=together.part(at), missing=together.missing_names[at])


def _answers(predicate: Predicate, together: Stacked, rows: _Rows) -> list[Verdict]:
    over = _over(predicate)
    if over is None:
        return [_asked(predicate, rows, at) for at in range(len(together))]
    left = (_left(together, over(together)) | rows.special).tolist()
    return [
        _asked(predicate, rows, at)
        if left[at]
        else blocked_verdict(predicate.name, rows.waits_only(at, together), together.none_left(at), None)
        for at in range(len(together))
    ]


def _over(predicate: Predicate) -> Callable[[Stacked], Bools] | None:
    """Which waits are over by themselves for a predicate that begins with the reduction; None for any other predicate."""
    if type(predicate) is Deadlock:
        return lambda together: together.columns.passing(together.missing)
    if type(predicate) is Gridlock:
        return _stale
    return None


def _stale(together: Stacked) -> Bools:
    stale: Bools = together.missing[together.columns.waiter]
    return stale


def _left(together: Stacked, ended: Bools) -> Bools:
    """(S,) the snapshots in which the most pessimistic reduction leaves a party of a member that reported."""
    reduction = reduce(together.columns, ended=ended, held=together.missing)
    stuck = np.flatnonzero(~reduction.free & ~together.missing)
    left = np.zeros(len(together), np.bool_)
    left[np.searchsorted(together.parties, stuck, side="right") - 1] = True
    return left


def _asked(predicate: Predicate, rows: _Rows, at: int) -> Verdict:
    snapshot = rows.whole(at)
    if rows.nobody[at]:
        return nobody_reported(predicate.name, snapshot)
    try:
        return ask(predicate, snapshot)
    except PluginError as error:
        return undetermined(predicate.name, snapshot.ref, "failed", str(error))
