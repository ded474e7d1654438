"""The archive's files as DataFrames: native Parquet for columns, lists of row groups for workers that read themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from detector.archive.schema import TABLES
from detector.archive.store import ArchiveFile, LeftOut, Scan, Store

UNITS_PER_CORE = 4
"""Tasks that each core gets: enough to even out, few enough that each is worth its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive between two days, its footers looked at: what to read, and what was left out."""

    store: Store
    scans: dict[str, Scan]

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
    """Look at every file's footer. Raises :class:`~detector.archive.store.ArchiveError` when there is no archive."""
    store = Store(location)
    store.check()
    return Archive(store=store, scans={table: store.scan(table, since=since, until=until) for table in TABLES})


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


def units(spark: SparkSession, archive: Archive, name: str) -> DataFrame:
    """A row per row group of ``name``: ``path``, ``day``, ``group``; neighbours lie in one partition."""
    rows = [(file.path, file.day, group) for file in archive.files(name) for group in range(file.groups)]
    frame = spark.createDataFrame(rows, "path string, day string, `group` int")
    cores = spark.sparkContext.defaultParallelism
    return frame.repartitionByRange(max(1, min(len(rows), UNITS_PER_CORE * cores)), "path", "group")


def groups_of(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[tuple[ArchiveFile, int]]:
    """The row groups that a partition of :func:`units` names."""
    for batch in batches:
        for row in batch.to_pylist():
            file = ArchiveFile(path=row["path"], table=name, day=row["day"], bytes=0, rows=0, groups=0, version=0)
            yield file, row["group"]


def _prefix(store: Store) -> str:
    scheme = store.location.split("://", 1)[0] if "://" in store.location else "file"
    return "file://" if scheme == "file" else f"{'s3a' if scheme == 's3' else scheme}://"
