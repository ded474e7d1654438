"""An archive as DataFrames: its tables, the verdicts on its snapshots, sightings of deadlocks, and incidents.

Start with ``table(spark, archive, "reports")`` or ``verdicts_of_archive(spark, archive, predicates)``; continue with
``verdicts_of_reports(reports, predicates)``, ``sightings(verdicts)`` and ``incidents(verdicts)``. The schemas are in
:mod:`detector.archive.rows.schema` and :mod:`detector.analysis.findings.incidents`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program names it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from detector.analysis.assembly import HEADER, STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS, assembled
from detector.analysis.findings import incidents as past
from detector.analysis.kernels import REPORTS_AT_ONCE
from detector.analysis.verdicts import FOUND, WAIT_COLUMNS, columns_for, verdicts_on
from detector.archive.files import ArchiveFiles
from detector.archive.offsets import EVERYTHING, Wanted
from detector.archive.rows.schema import TABLES
from detector.archive.units import Archive, Unit, open_archive
from detector.core.registry import NO_SETTINGS, PredicateSettings, find_predicates
from detector.spark.source.parquet_source import archive_table
from detector.spark.source.verdict_source import archive_verdicts

UNITS_PER_CORE = 4
"""Tasks per core: enough to balance the load, few enough that each is worth its start-up time."""
REPORTS_PER_PARTITION = 200_000
FINDING_COLUMNS = ("archive", "snapshot", "begun", "ended", "predicate", "holds", "findings")


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to a Spark schema."""
    return from_arrow_schema(schema)


def table(spark: SparkSession, archive: Archive | str, name: str, wanted: Wanted = EVERYTHING) -> DataFrame:
    """Return the ``wanted`` rows of one table with their ``day``; columns that old files lack are null.

    ``archive``: a location, or an archive that was opened once for several uses (:func:`detector.archive.units.open_archive`).
    From a disk, Spark reads the files itself and pushes filters down. From other storage our own workers read them, so that
    there is one set of credentials and one form of location.
    """
    schema = spark_schema(TABLES[name]).add("day", "string")
    archive = _opened(archive)
    files = archive.files(name)
    if not files:
        return spark.createDataFrame([], schema)
    if not isinstance(archive.store.filesystem, LocalFileSystem):
        return archive_table(spark, archive, name, wanted, tasks=UNITS_PER_CORE * spark.sparkContext.defaultParallelism)
    reader = spark.read.schema(schema).option("basePath", f"file://{archive.store.root}/{name}")
    return _bounded(reader.parquet(*[f"file://{file.path}" for file in files]), wanted)


def _opened(archive: Archive | str) -> Archive:
    return open_archive(archive) if isinstance(archive, str) else archive


def _bounded(rows: DataFrame, wanted: Wanted) -> DataFrame:
    if wanted.snapshot_min is not None:
        rows = rows.where(F.col("snapshot") >= wanted.snapshot_min)
    if wanted.snapshot_max is not None:
        rows = rows.where(F.col("snapshot") <= wanted.snapshot_max)
    if wanted.day_min:
        rows = rows.where(F.col("day") >= wanted.day_min)
    return rows.where(F.col("day") <= wanted.day_max) if wanted.day_max else rows


def verdicts_of_archive(
    spark: SparkSession,
    archive: Archive | str,
    predicates: Sequence[str],
    settings: Mapping[str, PredicateSettings] = NO_SETTINGS,
    wanted: Wanted = EVERYTHING,
) -> DataFrame:
    """Return the verdicts of ``predicates`` (``settings`` by name) on the snapshots of ``archive``, with findings; no shuffle.

    Only the ``wanted`` snapshots are read and evaluated; a filter on the DataFrame still evaluates all of them. A file that
    turns out to be damaged fails the job, which names it.
    """
    tasks = UNITS_PER_CORE * spark.sparkContext.defaultParallelism
    return archive_verdicts(spark, _opened(archive), predicates, settings, wanted, tasks=tasks)


def verdicts_of_reports(
    reports: DataFrame,
    predicates: Sequence[str],
    *,
    settings: Mapping[str, PredicateSettings] = NO_SETTINGS,
    headers: DataFrame | None = None,
    rows: int | None = None,
) -> DataFrame:
    """Return the verdicts, with findings, on snapshots whose reports come from anywhere, in any order, possibly duplicated.

    Parameters
    ----------
    reports : rows of ``reports``.
    settings : settings of the predicates, by name.
    headers : rows of ``snapshots``, which have the missing members and the times (their waits are ignored).
    rows : the approximate number of reports, which decides the number of partitions. If it is unknown, partitions of any size
        are sorted and processed a few snapshots at a time.
    """
    about_waits = columns_for(find_predicates(predicates, settings)) == WAIT_COLUMNS
    wanted = [*WAIT_REPORT_COLUMNS, *(() if about_waits else STATE_REPORT_COLUMNS)]
    together = reports.select(wanted)
    if headers is not None:
        together = together.unionByName(header_frame(headers), allowMissingColumns=True)
    names, chosen = tuple(predicates), dict(settings)
    at_once = sys.maxsize if rows else REPORTS_AT_ONCE  # a partition of bounded size is processed at once, unsorted

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked = find_predicates(names, chosen)
        for some in _complete_snapshots(batches, at_once):
            yield from verdicts_on(assembled(some), asked, findings=True).to_batches()

    key = ("archive", "snapshot")
    cores = reports.sparkSession.sparkContext.defaultParallelism
    parted = together.repartition(max(cores, (rows or 0) // REPORTS_PER_PARTITION + 1), *key)
    return (parted.sortWithinPartitions(*key) if not rows else parted).mapInArrow(work, spark_schema(FOUND))


def _complete_snapshots(batches: Iterable[pa.RecordBatch], rows_min: int) -> Iterator[pa.Table]:
    """Split rows sorted by archive and snapshot into tables of complete snapshots with about ``rows_min`` rows each."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(each.num_rows for each in gathered) >= rows_min:
            rows = pa.Table.from_batches(gathered)
            last = rows.slice(rows.num_rows - 1).select(["archive", "snapshot"]).to_pylist()[0]
            own = pc.and_(
                pc.equal(pc.fill_null(rows.column("archive"), ""), last["archive"] or ""),
                pc.equal(rows.column("snapshot"), last["snapshot"]),
            )
            begin = rows.num_rows - (pc.sum(own).as_py() or 0)
            if begin:
                yield rows.slice(0, begin)
                gathered = rows.slice(begin).to_batches()
    if gathered:
        yield pa.Table.from_batches(gathered)


def header_frame(snapshots: DataFrame) -> DataFrame:
    """Convert rows of ``snapshots`` to header rows among their reports."""
    expected = {"expected": F.transform("processes", lambda state: state["process"])}
    header = F.struct(*[expected.get(field.name, F.col(field.name)).alias(field.name) for field in HEADER]).alias("header")
    process = F.lit(None).cast("string").alias("process")
    return snapshots.select("archive", "snapshot", "begun", "members", process, header)


def sightings(verdicts: DataFrame) -> DataFrame:
    """Return rows of ``SIGHTINGS``, how often each core and near miss was seen, from verdicts with findings."""

    def work(rows: pa.Table) -> pa.Table:
        return pa.Table.from_pylist(past.sightings(rows), schema=past.SIGHTINGS)

    return _in_one_task(verdicts.where("findings is not null"), work, past.SIGHTINGS)


def incidents(verdicts: DataFrame) -> DataFrame:
    """Return rows of ``INCIDENTS``, by the service's rules, from verdicts with findings."""

    def work(rows: pa.Table) -> pa.Table:
        found = past.past_incidents(past.sightings(rows), past.definite_ends(rows))
        return pa.Table.from_pylist([asdict(each) for each in found], schema=past.INCIDENTS)

    return _in_one_task(verdicts.where("predicate = 'deadlock'"), work, past.INCIDENTS)


def over_parts(
    spark: SparkSession,
    location: str,
    parts: Sequence[Sequence[Unit]],
    work: Callable[[ArchiveFiles, Iterable[Unit], int], Iterator[pa.Table]],
    schema: pa.Schema,
) -> DataFrame:
    """Apply ``work`` to each run of neighbouring units, in a task of its own; return its results as rows of ``schema``."""

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = ArchiveFiles(location)
        for batch in batches:
            for part in batch.column(0).to_pylist():
                for rows in work(store, parts[part], part):
                    yield from rows.to_batches()

    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(mapped, spark_schema(schema))


def _in_one_task(verdicts: DataFrame, work: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    """Apply ``work`` in a single task to all rows, with only the columns that it needs."""
    columns = pa.schema([FOUND.field(name) for name in FINDING_COLUMNS])

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = [pa.Table.from_batches([batch]).cast(columns) for batch in batches]
        yield from work(pa.concat_tables([columns.empty_table(), *gathered])).to_batches()

    return verdicts.select(*FINDING_COLUMNS).repartition(1).mapInArrow(mapped, spark_schema(schema))
