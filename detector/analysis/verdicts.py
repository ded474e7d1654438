"""Evaluates predicates on many archived snapshots at once, with the same verdicts as the service.

``deadlock`` and ``gridlock`` begin with the most pessimistic reduction. One run of it over a whole batch leaves no party in
most snapshots, and their FALSE verdicts follow directly. All other snapshots and predicates are evaluated one by one, as in the
service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.disjoint_union import DisjointUnion, disjoint_union
from detector.analysis.findings.near_misses import FINDINGS, cores, near_misses
from detector.archive.rows.list_columns import combined, lengths
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.row_decoder import ref_of, snapshot_of
from detector.archive.rows.row_encoder import verdict_row
from detector.archive.rows.schema import SNAPSHOTS, VERDICTS
from detector.core.predicate import Predicate, reads_activity, treats_forgotten
from detector.core.protocol.assembler import Outcome
from detector.core.registry import PluginError, ask
from detector.core.snapshot import Snapshot
from detector.core.undetermined import nobody_reported, undetermined
from detector.graph.columns import Bools
from detector.graph.reduction import reduce
from detector.predicates.deadlock import Deadlock
from detector.predicates.evidence.blocked_verdict import NAMED_MAX, first_movers, free_witness, waiting_parties
from detector.predicates.gridlock import Gridlock
from stilltrue.model import Holds, PartyName, Verdict, Witness

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
"""The columns of ``verdicts``, and the findings of an analysis."""


def columns_for(predicates: Sequence[Predicate]) -> tuple[str, ...]:
    """Return the columns of ``snapshots`` that ``predicates`` need: fewer if all of them look only at waits."""
    return WAIT_COLUMNS if all(_ended_waits(predicate) for predicate in predicates) else tuple(SNAPSHOTS.names)


def verdicts_on(snapshots: pa.Table, predicates: Sequence[Predicate], *, findings: bool = False) -> pa.Table:
    """Evaluate ``predicates`` on rows of ``snapshots`` (with at least :func:`columns_for`).

    Returns
    -------
    pyarrow.Table
        Rows of ``verdicts``, in the order of ``snapshots`` and then of ``predicates``. Rejected snapshots have none. A
        predicate that fails answers UNDETERMINED with a witness of kind ``failed`` and affects no other answer. With
        ``findings``, rows of :data:`FOUND`: the verdicts of ``deadlock`` carry the cores and near misses.
    """
    wanted = pa.array([outcome != Outcome.REJECTED.value for outcome in snapshots.column("outcome").to_pylist()], pa.bool_())
    kept = snapshots.filter(wanted)
    if not kept.num_rows:
        return (FOUND if findings else VERDICTS).empty_table()
    together = disjoint_union(kept)
    rows = _Rows(kept)
    free = _free_witnesses(together, rows)
    answers = [_answers(predicate, together, rows, free) for predicate in predicates]
    archives = kept.column("archive").to_pylist() if "archive" in kept.column_names else [None] * kept.num_rows
    found = [
        verdict_row(verdict) | {"archive": archive}
        for archive, *verdicts in zip(archives, *answers, strict=True)
        for verdict in verdicts
    ]
    if "absent" in kept.column_names:
        _doubt_absent_reports(found, kept.column("absent").to_pylist(), len(predicates))
        _doubt_absent_headers(found, kept.column("headless").to_pylist(), predicates)
    if not findings:
        return pa.Table.from_pylist(found, schema=VERDICTS)
    for at, predicate in enumerate(predicates):
        if predicate.name == "deadlock":
            _add_findings(found[at :: len(predicates)], together, rows)
    return pa.Table.from_pylist(found, schema=FOUND)


def _doubt_absent_reports(verdicts: Sequence[Row], absent: Sequence[Sequence[str] | None], predicates: int) -> None:
    """Make FALSE undetermined where reports are absent: with them the answer might be TRUE."""
    for at, row in enumerate(verdicts):
        names = absent[at // predicates]
        if names and row["holds"] == Holds.FALSE.value:
            named = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            text = f"not known: there is no report from {named}, on which the answer may depend"
            row |= {"holds": Holds.UNDETERMINED.value, "witness_kind": "missing", "witness_text": text}
            row |= {"witness_parties": [], "explanation": [], "decisive": list(names)}


def _doubt_absent_headers(verdicts: Sequence[Row], headless: Sequence[bool | None], predicates: Sequence[Predicate]) -> None:
    """Make answers undetermined that an absent header may contradict: it lists forgetful members and doubtful idleness."""
    for at, row in enumerate(verdicts):
        predicate = predicates[at % len(predicates)]
        doubted = reads_activity(predicate) and row["holds"] == Holds.TRUE.value
        if headless[at // len(predicates)] and row["witness_kind"] != "failed" and (doubted or not treats_forgotten(predicate)):
            text = (
                f"not known: the row of snapshot {row['snapshot']} in `snapshots` is not here, and the answer may depend on it"
            )
            row |= {"holds": Holds.UNDETERMINED.value, "witness_kind": "missing", "witness_text": text}
            row |= {"witness_parties": [], "explanation": [], "remainder": [], "core": [], "behind": [], "victims": []}


def _add_findings(verdicts: Sequence[Row], together: DisjointUnion, rows: _Rows) -> None:
    """Add the findings to the verdicts of ``deadlock``, one for each snapshot."""
    free = np.asarray([row["holds"] == Holds.FALSE.value for row in verdicts], np.bool_)
    for at, near in near_misses(together, free).items():
        verdicts[at]["findings"] = near
    for at, row in enumerate(verdicts):
        if row["holds"] == Holds.TRUE.value:
            row["findings"] = cores(row["predicate"], row["core"], rows.row(at))


class _Rows:
    """The rows of a batch: cheap references at once, whole snapshots on demand."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._missing_columns = [name for name in SNAPSHOTS.names if name not in table.column_names]
        self.refs = [ref_of(row) for row in table.select(["snapshot", "scope", "begun", "ended", "members"]).to_pylist()]
        self._whole: dict[int, Snapshot] = {}
        absent = lengths(combined(table.column("missing")))
        members = pc.fill_null(combined(table.column("members")), -1).to_numpy(zero_copy_only=False)
        self.unreported = members == absent
        """(S,) whether no member has reported."""
        self.special = self.unreported | (lengths(combined(table.column("membership"))) > 0)
        """(S,) whether no member has reported, or the membership withholds answers."""

    def whole(self, at: int) -> Snapshot:
        """Return the snapshot as the service saw it."""
        if at not in self._whole:
            self._whole[at] = snapshot_of(self.row(at))
        return self._whole[at]

    def row(self, at: int) -> Row:
        """Return the snapshot's row, with None in the columns that were not read."""
        row: Row = dict.fromkeys(self._missing_columns) | self._table.slice(at, 1).to_pylist()[0]
        return row


def _free_witnesses(together: DisjointUnion, rows: _Rows) -> list[Witness]:
    """Return a witness for each snapshot, used if the predicate finds no deadlocked party."""
    movers = first_movers(together.columns, together.missing)
    begins = together.by_snapshot(movers)
    counts, waiting = np.diff(begins), np.diff(together.by_snapshot(waiting_parties(together.columns, together.missing)))
    named = movers[np.arange(len(movers)) - np.repeat(begins[:-1], counts) < NAMED_MAX]
    names = together.names_of(named)
    shown = pairwise(together.by_snapshot(named).tolist())
    columns = zip(rows.refs, shown, counts.tolist(), waiting.tolist(), together.missing_names, strict=True)
    return [
        free_witness(ref, tuple(map(PartyName, names[low:high])), movers=count, waiting=blocked, absent=bool(absent))
        for ref, (low, high), count, blocked, absent in columns
    ]


def _answers(predicate: Predicate, together: DisjointUnion, rows: _Rows, free: Sequence[Witness]) -> list[Verdict]:
    ended = _ended_waits(predicate)
    if ended is None:
        return [_asked(predicate, rows, at) for at in range(len(together))]
    undecided = (_has_remainder(together, ended(together)) | rows.special).tolist()
    return [
        _asked(predicate, rows, at)
        if undecided[at]
        else Verdict(
            predicate=predicate.name,
            holds=Holds.FALSE,
            witness=free[at],
            snapshot=rows.refs[at],
            missing=together.missing_names[at],
        )
        for at in range(len(together))
    ]


def _ended_waits(predicate: Predicate) -> Callable[[DisjointUnion], Bools] | None:
    """Return a function that finds the waits the reduction takes as ended, or None if the predicate uses no reduction."""
    if type(predicate) is Deadlock:
        return lambda together: together.columns.passing(together.missing)
    if type(predicate) is Gridlock:
        return _stale
    return None


def _stale(together: DisjointUnion) -> Bools:
    stale: Bools = together.missing[together.columns.waiter]
    return stale


def _has_remainder(together: DisjointUnion, ended: Bools) -> Bools:
    """(S,) whether the most pessimistic reduction leaves a party of a member that reported."""
    reduction = reduce(together.columns, ended=ended, held=together.missing)
    stuck = np.flatnonzero(~reduction.free & ~together.missing)
    left = np.zeros(len(together), np.bool_)
    left[np.searchsorted(together.parties, stuck, side="right") - 1] = True
    return left


def _asked(predicate: Predicate, rows: _Rows, at: int) -> Verdict:
    snapshot = rows.whole(at)
    if rows.unreported[at]:
        return nobody_reported(predicate.name, snapshot)
    try:
        return ask(predicate, snapshot)
    except PluginError as error:
        return undetermined(predicate.name, snapshot.ref, "failed", str(error))
