"""One bucket of one micro-batch: combines waiting and new rows, judges snapshots that are ready, and keeps the rest waiting.

Rules:

1. A snapshot is judged once all members that its header expects have reported; or, when its archive's watermark is
   ``give_up_seconds`` past its beginning, with the reports at hand. The other members are then missing, and the verdict may be
   UNDETERMINED. Only snapshots with a lower number than the watermark's can be late: the detector's clock may have been set
   back.
2. The reports of a snapshot that was given up are kept. When late ones arrive, it is judged again: a corrected verdict gets the
   next revision number. It is finished once all have arrived, or ``late_seconds`` after its beginning.
3. A snapshot with two start times comes from two detectors without an id, whose reports cannot be told apart: it is finished
   without a verdict.
4. Waiting rows of a stream that ran with other predicates may lack the columns of processes' states. Such a snapshot gets no
   verdict of a predicate that needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.analysis.assembly import HEADER, STATE_REPORT_COLUMNS, assembled, attendance, split
from detector.analysis.verdicts import FOUND, WAIT_COLUMNS, columns_for, verdicts_on
from detector.archive.deduplicate import ambiguous, by_archive, deduplicated
from detector.archive.rows.schema import REPORTS
from detector.core.predicate import Predicate
from detector.spark.streaming.progress import NEVER, Began, Newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a snapshot is judged. ``watermarks`` are by archive, which has none before its first report."""

    watermarks: Mapping[str, Began]
    give_up_seconds: float
    late_seconds: float
    headers_expected: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssembledBucket:
    """The result for one archive's rows in a bucket.

    Attributes
    ----------
    verdicts : the verdicts on the ``judged`` snapshots (rejected ones have none), ``corrected`` of which replace earlier ones.
    finished : the snapshots that will not be judged again; ``closed``: those of them that never got all their reports.
    waiting : the rows of unfinished snapshots: ``waits`` that are not judged yet, and ``given_up`` that are.
    due : the watermark at which the next of them is judged or closed.
    newest : the snapshots with the highest numbers in reports and in headers.
    mixed : the snapshots of rule 3; ``began``: when each finished snapshot began, for archives without an id.
    """

    verdicts: pa.Table
    judged: int
    corrected: int
    finished: tuple[int, ...]
    closed: tuple[int, ...]
    waiting: pa.Table
    waits: int
    given_up: int
    due: float
    newest: Newest
    mixed: tuple[int, ...] = ()
    began: Mapping[int, float] = field(default_factory=dict)


def fragment_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of reports and headers together; ``judged`` counts the verdicts in which the row took part."""
    return pa.schema([*(REPORTS.field(name) for name in columns), pa.field("header", HEADER), pa.field("judged", pa.int32())])


def assemble(rows: pa.Table, predicates: Sequence[Predicate], patience: Patience) -> dict[str, AssembledBucket]:
    """Judge the snapshots that are ready; return the results by archive.

    Parameters
    ----------
    rows : reports and headers (whose ``process`` is null) of unfinished snapshots, in any order. Of duplicate rows the first
        one counts; waiting rows come first.
    """
    return {archive: _assemble(archive, own, predicates, patience) for archive, own in by_archive(rows)}


def _assemble(archive: str, every: pa.Table, predicates: Sequence[Predicate], patience: Patience) -> AssembledBucket:
    both = ambiguous(every)
    rows = deduplicated(every.filter(pa.array(~both)) if both.any() else every)
    mixed = np.unique(every.column("snapshot").to_numpy()[both]).tolist()
    snapshots, at = np.unique(rows.column("snapshot").to_numpy(), return_inverse=True)
    reports, headers = split(rows)
    began = np.full(len(snapshots), np.inf)
    np.minimum.at(began, at, pc.fill_null(rows.column("begun"), 0.0).to_numpy())
    before = np.zeros(len(snapshots), np.int64)
    np.maximum.at(before, at, pc.fill_null(rows.column("judged"), 0).to_numpy())
    fresh = np.zeros(len(snapshots), np.bool_)
    fresh[at[rows.column("judged").is_null().to_numpy()]] = True
    complete = attendance(snapshots, reports, headers).complete()
    if patience.headers_expected:
        complete &= np.isin(snapshots, headers.column("snapshot").to_numpy())
    number, mark = patience.watermarks.get(archive, NEVER)
    late = began + patience.give_up_seconds < mark
    if number > 0:
        late &= snapshots < number
    judged = fresh & (complete | late | (before > 0))
    finished = complete | (late & (began + patience.late_seconds < mark))
    verdicts = _verdicts(rows.filter(pa.array(judged[at])), predicates, snapshots, before)
    kept = np.flatnonzero(~finished[at])
    waiting = rows.take(pa.array(kept))
    times = (before + judged)[at[kept]]
    place = waiting.schema.get_field_index("judged")
    times_judged = pa.array(times, pa.int32(), mask=times == 0)
    unjudged = ~finished & (before + judged == 0)
    due = began + np.where(unjudged, patience.give_up_seconds, patience.late_seconds)
    return AssembledBucket(
        verdicts=verdicts,
        judged=len(verdicts.column("snapshot").unique()),
        corrected=verdicts.num_rows - verdicts.column("revision").null_count,
        finished=(*snapshots[finished].tolist(), *mixed),
        closed=tuple(snapshots[finished & ~complete].tolist()),
        waiting=waiting.set_column(place, waiting.schema.field(place), times_judged),
        waits=int(unjudged.sum()),
        given_up=int((~finished & ~unjudged).sum()),
        due=float(due[~finished].min(initial=np.inf)),
        newest=(_newest(archive, reports), _newest(archive, headers)),
        mixed=tuple(mixed),
        began={} if archive else dict(zip(snapshots[finished].tolist(), began[finished].tolist(), strict=True)),
    )


def _verdicts(
    rows: pa.Table, predicates: Sequence[Predicate], snapshots: NDArray[np.int64], revisions: NDArray[np.int64]
) -> pa.Table:
    if not rows.num_rows:
        return FOUND.empty_table()
    lacking = _without_states(rows)
    about_waits = [predicate for predicate in predicates if columns_for([predicate]) == WAIT_COLUMNS]
    found = pa.concat_tables(
        [_found(rows.filter(pa.array(~lacking)), predicates), _found(_waits_only(rows.filter(pa.array(lacking))), about_waits)]
    )
    revision = revisions[np.searchsorted(snapshots, found.column("snapshot").to_numpy())]
    place = found.schema.get_field_index("revision")
    return found.set_column(place, found.schema.field(place), pa.array(revision, pa.int32(), mask=revision == 0))


def _found(rows: pa.Table, predicates: Sequence[Predicate]) -> pa.Table:
    if not rows.num_rows or not predicates:
        return FOUND.empty_table()
    return verdicts_on(assembled(rows), predicates, findings=True)


def _without_states(rows: pa.Table) -> NDArray[np.bool_]:
    """Which rows belong to a snapshot with a report that lacks its process's state (rule 4)."""
    if "activity" not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    lacking = pc.and_(pc.is_valid(rows.column("process")), pc.is_null(rows.column("activity")))
    snapshots = rows.column("snapshot")
    found: NDArray[np.bool_] = pc.is_in(snapshots, pc.unique(snapshots.filter(lacking))).to_numpy()
    return found


def _waits_only(rows: pa.Table) -> pa.Table:
    return rows.select([name for name in rows.schema.names if name not in STATE_REPORT_COLUMNS])


def _newest(archive: str, rows: pa.Table) -> Began | None:
    if not rows.num_rows:
        return None
    if archive:
        rows = rows.filter(pc.equal(rows.column("snapshot"), pc.max(rows.column("snapshot"))))
    number: int = rows.column("snapshot")[0].as_py() if archive else 0
    return number, pc.max(pc.fill_null(rows.column("begun"), 0.0)).as_py()
