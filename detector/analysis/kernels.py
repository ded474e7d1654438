"""The two kernels of an analysis: one evaluates snapshots and writes verdicts, the other counts over reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import DAILY, DAY, KEYS, TALLIED, TALLY, SnapshotTimes, merged, tallied
from detector.analysis.result_folder import Results
from detector.analysis.verdicts import FOUND, columns_for, verdicts_on
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.offsets import EVERYTHING, Wanted
from detector.archive.rows.schema import SNAPSHOTS
from detector.archive.units import Unit, by_day
from detector.core.predicate import Predicate
from detector.core.registry import PredicateSettings, find_predicates

VERDICTS = "verdicts"
"""The result table that :class:`Evaluate` writes."""
REPORTS_AT_ONCE = 100_000
"""Small files are evaluated together until their snapshots have about this many reports."""
TALLIES_AT_ONCE = 32
LEFT_OUT = "left out"
"""The kind of tally rows that name a file that turned out to be unreadable (``one``) and the reason (``two``)."""

HEADS = pa.schema(
    [
        *(FOUND.field(name) for name in ("archive", "snapshot", "begun", "ended", "predicate", "holds", "findings")),
        ("left_out_path", pa.string()),
        ("left_out_reason", pa.string()),
    ]
)
"""The columns of a verdict that later steps need; or, with all these null, a file that turned out unreadable and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Evaluates units of ``snapshots``: writes the verdicts to ``results`` and returns their ``HEADS``."""

    predicates: tuple[str, ...]
    settings: Mapping[str, PredicateSettings] = field(default_factory=dict)
    results: Results
    reports_per_row: float = 1.0

    name = "evaluate snapshots"
    schema = HEADS
    keys = ()

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        """As :meth:`~detector.analysis.engine.Kernel.work`."""
        asked = find_predicates(self.predicates, self.settings)
        for day, own in by_day(units).items():
            heads: list[pa.Table] = []
            self.results.write_part(VERDICTS, day, part, _split(evaluated(store, own, asked), heads), FOUND)
            yield from heads

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        """As :meth:`~detector.analysis.engine.Kernel.merge`."""
        return pa.concat_tables([HEADS.empty_table(), *tables])


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Tallies units of ``reports`` by day; ``ends``: when each snapshot began and ended, by archive."""

    ends: Mapping[str, SnapshotTimes]

    name = "count reports"
    schema = DAILY
    keys = (*KEYS, DAY)
    reports_per_row = 1.0

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:  # noqa: ARG002
        """As :meth:`~detector.analysis.engine.Kernel.work`."""
        for day, own in by_day(units).items():
            gathered: list[pa.Table] = []
            for unit in own:
                rows, failed = unit.read(store, TALLIED)
                gathered.append(tallied(rows, self.ends))
                for error in failed:
                    row = {"kind": LEFT_OUT, "one": error.path, "two": error.reason, "archive": "", "snapshot": 0, "samples": 1}
                    gathered.append(pa.Table.from_pylist([row], schema=TALLY))
                if len(gathered) >= TALLIES_AT_ONCE:
                    gathered = [merged(gathered)]
            tally = merged(gathered)
            yield tally.append_column(DAILY.field(DAY), pa.repeat(pa.scalar(day, pa.string()), tally.num_rows))

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        """As :meth:`~detector.analysis.engine.Kernel.merge`."""
        return merged(tables, DAILY)


def evaluated(
    store: ArchiveFiles,
    units: Iterable[Unit],
    asked: Sequence[Predicate],
    wanted: Wanted = EVERYTHING,
) -> Iterator[pa.Table | ArchiveError]:
    """Yield the verdicts on the ``wanted`` snapshots of units, as ``FOUND``, and the errors of files that cannot be read."""
    columns = pa.schema([SNAPSHOTS.field(name) for name in columns_for(asked)])
    gathered: list[pa.Table] = []
    reports = 0
    for unit in units:
        rows, failed = unit.read(store, columns)
        yield from failed
        rows = wanted.rows(rows)
        gathered.append(rows)
        reports += pc.sum(rows.column("members")).as_py() or 0
        if reports >= REPORTS_AT_ONCE:
            yield verdicts_on(pa.concat_tables(gathered), asked, findings=True)
            gathered, reports = [], 0
    if gathered:
        yield verdicts_on(pa.concat_tables(gathered), asked, findings=True)


def _split(found: Iterable[pa.Table | ArchiveError], heads: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the verdicts; append their ``HEADS``, and those of errors, to ``heads``."""
    for each in found:
        if isinstance(each, ArchiveError):
            heads.append(_left_out(each))
        else:
            heads.append(heads_of(each))
            yield each


def heads_of(verdicts: pa.Table) -> pa.Table:
    """Return the ``HEADS`` of verdicts."""
    empty = pa.nulls(verdicts.num_rows, pa.string())
    return pa.table([*(verdicts.column(name) for name in HEADS.names[:-2]), empty, empty], schema=HEADS)


def _left_out(error: ArchiveError) -> pa.Table:
    return pa.Table.from_pylist([{"left_out_path": error.path, "left_out_reason": error.reason}], schema=HEADS)
