"""The archive's files as DataFrames: native Parquet for columns, lists of row groups for workers that read themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from detector.archive.files import ArchiveFile, LeftOut, Scan, Store
from detector.archive.schema import TABLES

UNITS_PER_CORE = 4
"""Tasks that each core gets: enough to even out, few enough that each is worth its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a worker reads at once: row groups of a file that hold whole snapshots."""

    file: ArchiveFile
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive between two days, its footers looked at: what to read, and what was left out."""

    store: Store
    scans: dict[str, Scan]
    since: str = ""
    until: str = ""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files that cannot be read, of all tables."""
        return tuple(left for table in sorted(self.scans) for left in self.scans[table].left_out)

    def files(self, table: str) -> tuple[ArchiveFile, ...]:
        """The good files of ``table``."""
        return self.scans[table].files

    def rows(self, table: str) -> int:
        """Rows in the good files of ``table``."""
        return sum(file.rows for file in self.files(table))


def open_archive(location: str, *, since: str = "", until: str = "") -> Archive:
    """Look at every file's footer. Raises :class:`~detector.archive.files.ArchiveError` when there is no archive."""
    store = Store(location)
    store.check()
    scans = {table: store.scan(table, since=since, until=until) for table in TABLES}
    return Archive(store=store, scans=scans, since=since, until=until)


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns in Spark's words."""
    return from_arrow_schema(schema)


def table(spark: SparkSession, archive: Archive, name: str) -> DataFrame:
    """The rows of one table, read by Spark itself; old files have null where they lack a column."""
    schema = spark_schema(TABLES[name])
    files = archive.files(name)
    if not files:
        return spark.createDataFrame([], schema)
    prefix = _prefix(archive.store)
    return spark.read.schema(schema).parquet(*[prefix + file.path for file in files])


def over_units(
    spark: SparkSession,
    archive: Archive,
    name: str,
    work: Callable[[Store, Iterator[Unit]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """What ``work`` makes of the units of table ``name``, as rows of ``schema``; neighbours lie in one partition."""
    units = [
        Unit(file=replace(file, spans=(), replaces=()), groups=span) for file in archive.files(name) for span in file.spans
    ]
    cores = spark.sparkContext.defaultParallelism
    parts = _parts(units, UNITS_PER_CORE * cores)
    location = archive.store.location

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = Store(location)
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from work(store, iter(parts[part]))

    count = max(1, len(parts))
    return spark.range(0, len(parts), 1, count).mapInArrow(mapped, spark_schema(schema))


def _parts(units: Sequence[Unit], most: int) -> list[list[Unit]]:
    """At most ``most`` runs of neighbours with about as many rows each."""
    rows = [unit.file.rows * len(unit.groups) / max(unit.file.groups, 1) for unit in units]
    share = sum(rows) / most
    parts: list[list[Unit]] = []
    done = 0.0
    for unit, size in zip(units, rows, strict=True):
        if not parts or (done >= share * len(parts) and len(parts) < most):
            parts.append([])
        parts[-1].append(unit)
        done += size
    return parts


def _prefix(store: Store) -> str:
    scheme = store.location.split("://", 1)[0] if "://" in store.location else "file"
    return "file://" if scheme == "file" else f"{'s3a' if scheme == 's3' else scheme}://"
