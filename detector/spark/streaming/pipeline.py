"""The pipeline as a stream: assembles reports as they arrive, and writes every verdict exactly once, whatever is killed.

What Spark does of :mod:`detector.spark.streaming.micro_batch`: it finds what is new, moves packed rows to the workers, and runs
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
from detector.spark.source.archive_files import NAME as FILES
from detector.spark.source.archive_files import ArchiveFilesSource
from detector.spark.source.data_source import NAME, register
from detector.spark.streaming.micro_batch import MicroBatches
from detector.spark.streaming.packing import PACKED, PIECES, Worker
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.storage import Storage

KEY = ("archive", "snapshot", "scope", "predicate")
REPORTS_PER_HEADER = 10
ROWS_PER_TASK_MIN = 50_000
PACKED_AT_ONCE = 16
"""Packed rows that one Arrow batch holds: each may be as large as what is packed at once, and 2 GiB is Arrow's end."""


def archive_stream(spark: SparkSession, location: str, plan: StreamPlan) -> DataFrame:
    """The files of an archive's reports and headers, as they come to be. Workers read them; a torn one is named."""
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
    """The reports and headers of a live detector's archive, unopened; ``options``: those of the data source ``stilltrue``."""
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
    """Start the query over what :func:`archive_stream` (of ``location``) or :func:`detector_stream` gives.

    Verdicts come to lie in ``out/verdicts/batch=N``. ``once``: take what is there, then end. Spark's own checkpoint lies in a
    scratch directory, and is of no use to anybody: what has been read is in the plan's state.

    Raises
    ------
    detector.spark.streaming.progress.ProgressError
        When the state is another version's, or another stream begins with it at the same time.
    """
    assert pieces.columns == PIECES.names
    plan.folder.last()
    batches = MicroBatches(plan, location, plan.folder.begin())
    scratch = tempfile.mkdtemp(prefix="stilltrue-stream-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)

    def batch(found: DataFrame, number: int) -> None:
        spark = found.sparkSession
        spark.sparkContext.setJobDescription(f"stilltrue: batch {number}, assembled and judged")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PACKED_AT_ONCE))
        batches.run(_SparkWorkers(found))

    writer = pieces.writeStream.option("checkpointLocation", f"file://{scratch}").foreachBatch(batch)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{plan.trigger_seconds} seconds"}
    return writer.trigger(**trigger).start()


@dataclass(frozen=True, slots=True)
class _SparkWorkers:
    """Spark's, over the pieces of one micro-batch."""

    pieces: DataFrame

    def packed(self, pack: Worker, assemble: Worker, buckets: int) -> Sequence[str]:
        """One shuffle by bucket."""
        packed = self.pieces.mapInArrow(pack, spark_schema(PACKED)).repartition(buckets, "bucket")
        return _collected(packed, assemble)

    def waiting(self, assemble: Worker, buckets: Sequence[int]) -> Sequence[str]:
        """As many tasks as Spark likes."""
        rows = [(bucket, *[None] * (len(PACKED) - 1)) for bucket in buckets]
        return _collected(self.pieces.sparkSession.createDataFrame(rows, spark_schema(PACKED)), assemble)


def _collected(packed: DataFrame, assemble: Worker) -> list[str]:
    return [row.told for row in packed.mapInArrow(assemble, "told string").collect()]


def verdicts(spark: SparkSession, plan: StreamPlan) -> DataFrame:
    """All verdicts so far with their findings; of each the newest revision. Workers read them where they are."""
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
