"""Verdicts over an archive: workers read row groups of whole snapshots and evaluate each with one run of the reduction.

From whole-snapshot files nothing is shuffled. From reports in any order, doubled or late, one shuffle brings each snapshot's
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program names it

from detector.analysis.assembly import HEADER, STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS, assembled
from detector.analysis.verdicts import FOUND, WAIT_COLUMNS, columns_for, verdicts_on
from detector.archive.files import ArchiveError, Store
from detector.archive.schema import VERDICTS
from detector.core.registry import NO_SETTINGS, Settings, find_predicates
from detector.spark.tables import Archive, Unit, over_units, spark_schema

RESULT = pa.schema([*FOUND, ("left_out_path", pa.string()), ("left_out_reason", pa.string())])
"""Rows of ``verdicts`` with their findings; or, with all else null, a file that proved unreadable on the way, and why."""

REPORTS_PER_PARTITION = 200_000
REPORTS_AT_ONCE = 100_000
"""Reports' worth of snapshots that one run of the reduction takes: small files are put together."""
Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def verdicts_of_archive(
    spark: SparkSession, archive: Archive, predicates: Sequence[str], settings: Mapping[str, Settings] = NO_SETTINGS
) -> DataFrame:
    """The verdicts of ``predicates`` (``settings`` by name) on every snapshot of ``archive``, as ``RESULT``; no shuffle."""
    return over_units(spark, archive, "snapshots", _reading(tuple(predicates), dict(settings)), RESULT)


def verdicts_of_reports(
    reports: DataFrame,
    predicates: Sequence[str],
    *,
    settings: Mapping[str, Settings] = NO_SETTINGS,
    headers: DataFrame | None = None,
    rows: int | None = None,
) -> DataFrame:
    """The verdicts on snapshots whose reports lie anywhere, in any order, some more than once.

    Parameters
    ----------
    reports : rows of ``reports``.
    settings : of the predicates, by name.
    headers : rows of ``snapshots`` (their waits are not looked at): who was missing, and when each ended.
    rows : about how many reports there are, if that is known: it decides how many partitions are made.
    """
    about_waits = columns_for(find_predicates(predicates, settings)) == WAIT_COLUMNS
    wanted = [*WAIT_REPORT_COLUMNS, *(() if about_waits else STATE_REPORT_COLUMNS)]
    together = reports.select(wanted)
    if headers is not None:
        together = together.unionByName(header_frame(headers), allowMissingColumns=True)
    cores = reports.sparkSession.sparkContext.defaultParallelism
    partitions = max(cores, (rows or 0) // REPORTS_PER_PARTITION + 1)
    work = _assembling(tuple(predicates), dict(settings))
    return together.repartition(partitions, "snapshot").mapInArrow(work, spark_schema(VERDICTS))


def header_frame(snapshots: DataFrame) -> DataFrame:
    """Rows of ``snapshots`` as headers to be put among their reports."""
    header = F.struct(*[F.col(field.name) for field in HEADER]).alias("header")
    return snapshots.select("snapshot", "begun", "members", F.lit(None).cast("string").alias("process"), header)


def _reading(
    predicates: tuple[str, ...], settings: Mapping[str, Settings]
) -> Callable[[Store, Iterator[Unit]], Iterator[pa.RecordBatch]]:
    def work(store: Store, units: Iterator[Unit]) -> Iterator[pa.RecordBatch]:
        asked = find_predicates(predicates, settings)
        columns = columns_for(asked)
        gathered: list[pa.Table] = []
        reports = 0
        for unit in units:
            try:
                gathered += store.read(unit.file, columns=columns, groups=unit.groups)
            except ArchiveError as error:
                yield from _left_out(unit.file.path, str(error)).to_batches()
                continue
            reports += pc.sum(gathered[-1].column("members")).as_py() or 0
            if reports >= REPORTS_AT_ONCE:
                yield from _result(verdicts_on(pa.concat_tables(gathered), asked, findings=True)).to_batches()
                gathered, reports = [], 0
        if gathered:
            yield from _result(verdicts_on(pa.concat_tables(gathered), asked, findings=True)).to_batches()

    return work


def _left_out(path: str, reason: str) -> pa.Table:
    return pa.Table.from_pylist([{"left_out_path": path, "left_out_reason": reason}], schema=RESULT)


def _result(verdicts: pa.Table) -> pa.Table:
    empty = pa.nulls(verdicts.num_rows, pa.string())
    return pa.table([*verdicts.columns, empty, empty], schema=RESULT)


def _assembling(predicates: tuple[str, ...], settings: Mapping[str, Settings]) -> Worker:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = list(batches)
        if gathered:
            asked = find_predicates(predicates, settings)
            yield from verdicts_on(assembled(pa.Table.from_batches(gathered)), asked).to_batches()

    return work
