"""Temporary views for SQL: the tables of an archive, and the results of an analysis or a stream.

``archive_views(spark, archive)`` creates ``reports``, ``snapshots`` and so on; ``result_views(spark, out)`` creates
``found_verdicts``, ``found_incidents`` and so on. Then query them with ``spark.sql("select ...")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from detector.analysis.result_folder import ResultFile, Results
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.rows.schema import TABLES
from detector.archive.units import Archive, open_archive
from detector.spark.batch import spark_schema, table
from detector.spark.streaming.pipeline import verdicts
from detector.spark.streaming.plan import StreamPlan

PREFIX = "found_"
"""Prefix of the views of results: an archive has ``verdicts`` and ``incidents`` of its own, the detector's."""


def archive_views(spark: SparkSession, archive: Archive | str) -> tuple[str, ...]:
    """Create a view of each table of ``archive``, as :func:`detector.spark.batch.table` returns it; return their names."""
    opened = open_archive(archive) if isinstance(archive, str) else archive
    for name in TABLES:
        table(spark, opened, name).createOrReplaceTempView(name)
    return tuple(TABLES)


def result_views(spark: SparkSession, out: str) -> tuple[str, ...]:
    """Create a view of each table of the newest results in ``out``; return their names.

    An analysis has the tables that its manifest names; those split by day have a column ``day``. A stream has one,
    ``found_verdicts``, with the newest revision of each verdict; create the view again to see later verdicts.

    Raises
    ------
    ArchiveError
        If there are no results.
    """
    results = Results(location=out)
    tables = {name: files for name, files in results.last().tables.items() if files and not name.startswith("_")}
    frames = {name: _rows(spark, results, name, files) for name, files in tables.items()}
    if not frames:
        if not StreamPlan(out=out).folder.results.sizes("verdicts"):
            raise ArchiveError(f"{out}: there are no results here")
        frames = {"verdicts": verdicts(spark, StreamPlan(out=out))}
    for name, rows in frames.items():
        rows.createOrReplaceTempView(f"{PREFIX}{name}")
    return tuple(f"{PREFIX}{name}" for name in frames)


def _rows(spark: SparkSession, results: Results, name: str, files: Sequence[ResultFile]) -> DataFrame:
    """Return a table's rows; Spark reads them from disks, our own workers from any other storage."""
    store = ArchiveFiles(results.location)
    with store.filesystem.open_input_file(f"{store.root}/{files[0].path}") as source:
        schema = pq.read_schema(source).remove_metadata()
    if isinstance(store.filesystem, fs.LocalFileSystem):
        columns = spark_schema(schema).add("day", "string") if files[0].day else spark_schema(schema)
        reader = spark.read.schema(columns).option("basePath", f"file://{store.root}/{name}")
        return reader.parquet(*[f"file://{store.root}/{file.path}" for file in files])
    with_day = schema.append(pa.field("day", pa.string())) if files[0].day else schema

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                rows = results.read([ResultFile(path=row["path"], rows=0)], schema)
                if row["day"]:
                    rows = rows.append_column("day", pa.repeat(pa.scalar(row["day"], pa.string()), rows.num_rows))
                yield from rows.to_batches()

    paths = spark.createDataFrame([(file.path, file.day) for file in files], "path string, day string")
    return paths.mapInArrow(read, spark_schema(with_day))
