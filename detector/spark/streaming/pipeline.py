"""The pipeline as a stream: assembles reports as they arrive, and writes each verdict exactly once, even across kills.

It is Spark's part of :mod:`detector.spark.streaming.micro_batch`: finding new input, moving packed rows to workers, running
them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.assembly import HEADER_SOURCE
from detector.analysis.verdicts import FOUND
from detector.spark.batch import spark_schema
from detector.spark.source.data_source import NAME, register
from detector.spark.source.new_files_source import NAME as FILES
from detector.spark.source.new_files_source import ArchiveFilesSource
from detector.spark.streaming.micro_batch import MicroBatches
from detector.spark.streaming.packing import PACKED, PIECES, Worker
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.storage import Storage

KEY = ("archive", "snapshot", "scope", "predicate")
REPORTS_PER_HEADER = 10
ROWS_PER_TASK_MIN = 50_000
PACKED_AT_ONCE = 16
"""Packed rows per Arrow batch: a packed row may be as large as ``BYTES_AT_ONCE``, and Arrow's limit is 2 GiB."""


def archive_stream(spark: SparkSession, location: str, plan: StreamPlan) -> DataFrame:
    """Return a stream of the files of an archive's reports and headers. Workers read them, and name damaged ones."""
    spark.dataSource.register(ArchiveFilesSource)
    options = {
        "location": location,
        "out": plan.out,
        "state": plan.state,
        "bytes_per_batch_max": str(plan.bytes_per_batch_max),
        "tasks": str(spark.sparkContext.defaultParallelism),
    }
    return spark.readStream.format(FILES).options(**options).load()


def detector_stream(spark: SparkSession, options: Mapping[str, str], plan: StreamPlan) -> DataFrame:
    """Return a stream of a live detector's reports and headers, undecoded; ``options``: of the data source ``stilltrue``."""
    register(spark)
    positions = plan.folder.last().positions

    def rows(table: str, columns: Sequence[str], rows_max: int) -> DataFrame:
        own = {"table": table, "columns": ",".join(columns), "packed": "true", "rows_per_batch_max": str(rows_max)}
        begin = {"starting": str(positions[table])} if table in positions else {}
        share = {"rows_per_partition": str(max(ROWS_PER_TASK_MIN, rows_max // spark.sparkContext.defaultParallelism))}
        found = spark.readStream.format(NAME).options(**{**share, **options, **own, **begin}).load()
        return found.select(
            F.lit(table).alias("table"),
            F.lit(None).cast("string").alias("path"),
            F.lit(None).cast("bigint").alias("bytes"),
            "content",
            "until",
        )

    most = plan.rows_per_batch_max
    headers = rows("snapshots", HEADER_SOURCE.names, max(1, most // REPORTS_PER_HEADER))
    return rows("reports", plan.columns, most).unionByName(headers)


def start(pieces: DataFrame, plan: StreamPlan, *, location: str = "", once: bool = False) -> StreamingQuery:
    """Start the query over an :func:`archive_stream` (of ``location``) or a :func:`detector_stream`.

    Verdicts are published in ``out/verdicts/batch=N``. ``once``: process what is there, then end. Spark's own checkpoint is in
    a temporary directory and never used again: the plan's state has what has been read.

    Raises
    ------
    detector.spark.streaming.progress.ProgressError
        If the state is from another version, or another stream starts with it at the same time.
    """
    assert pieces.columns == PIECES.names
    plan.folder.last()
    batches = MicroBatches(plan, location, plan.folder.begin())
    scratch = tempfile.mkdtemp(prefix="stilltrue-stream-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)

    def batch(found: DataFrame, number: int) -> None:
        spark = found.sparkSession
        spark.sparkContext.setJobDescription(f"stilltrue: batch {number}, assembling and evaluating")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PACKED_AT_ONCE))
        batches.run(_SparkWorkers(found))

    writer = pieces.writeStream.option("checkpointLocation", f"file://{scratch}").foreachBatch(batch)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{plan.trigger_seconds} seconds"}
    return writer.trigger(**trigger).start()


@dataclass(frozen=True, slots=True)
class _SparkWorkers:
    """Spark's workers, for the pieces of one micro-batch."""

    pieces: DataFrame

    def packed(self, pack: Worker, assemble: Worker, buckets: int) -> Sequence[str]:
        """Run both steps, with one shuffle by bucket between them."""
        packed = self.pieces.mapInArrow(pack, spark_schema(PACKED)).repartition(buckets, "bucket")
        return _collected(packed, assemble)

    def waiting(self, assemble: Worker, buckets: Sequence[int]) -> Sequence[str]:
        """Run one step, in as many tasks as Spark chooses."""
        rows = [(bucket, *[None] * (len(PACKED) - 1)) for bucket in buckets]
        return _collected(self.pieces.sparkSession.createDataFrame(rows, spark_schema(PACKED)), assemble)


def _collected(packed: DataFrame, assemble: Worker) -> list[str]:
    return [row.summary for row in packed.mapInArrow(assemble, "summary string").collect()]


def verdicts(spark: SparkSession, plan: StreamPlan) -> DataFrame:
    """Return the newest revision of each verdict so far, with findings. From object stores, workers read the files."""
    plan.folder.publish(plan.folder.last())
    found = _published(spark, Storage(location=plan.out))
    found = found.dropDuplicates([*KEY, "revision"])
    same = Window.partitionBy(*KEY)
    newest = F.max(F.coalesce("revision", F.lit(0))).over(same)
    return found.withColumn("newest", newest).where(F.coalesce("revision", F.lit(0)) == F.col("newest")).drop("newest")


def _published(spark: SparkSession, results: Storage) -> DataFrame:
    names = sorted(name for name in results.sizes("verdicts") if name.endswith(".parquet") and "/_" not in name)
    if results.directory is not None and names:
        return spark.read.schema(spark_schema(FOUND)).parquet(f"file://{results.directory}/verdicts").drop("batch")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column(0).to_pylist():
                rows = pq.ParquetFile(pa.BufferReader(results.read(name))).read(use_threads=False)
                yield from rows.select(FOUND.names).cast(FOUND).to_batches()

    schema = "name string"
    return spark.createDataFrame([(name,) for name in names], schema).mapInArrow(read, spark_schema(FOUND))
