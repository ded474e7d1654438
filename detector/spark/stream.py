"""The pipeline as a stream: reports put together as they come, every verdict written once, whatever is killed whenever.

Rules:

1. A snapshot is finished when all its members' reports are there that its header expects; or, ``give_up_seconds`` after its
   beginning by the newest beginning seen (the watermark), with those that are: incomplete.
2. Reports of a finished snapshot, late or doubled, change nothing: the numbers of all finished snapshots are kept.
3. A micro-batch's results and the state after it lie in folders that bear its number, made from the state before it and its
   rows alone. A batch that is run again after a crash writes the very same folders anew.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from detector.archive.assemble import STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS
from detector.archive.schema import REPORTS, SNAPSHOTS, VERDICTS
from detector.archive.store import Store
from detector.spark.evaluate import header_frame, verdicts_of_reports
from detector.spark.tables import spark_schema

GIVE_UP_SECONDS = 600.0
STATES_KEPT = 2
COLUMNS = (*WAIT_REPORT_COLUMNS, *STATE_REPORT_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Where results and state go, what is asked, and how patient the assembly is. ``out`` is a path that all workers share."""

    out: Path
    predicates: tuple[str, ...] = ("deadlock", "gridlock")
    give_up_seconds: float = GIVE_UP_SECONDS
    headers_expected: bool = True
    files_per_batch_max: int = 100

    @property
    def checkpoint(self) -> Path:
        """Spark's own record of what it has read."""
        return self.out / "_stream" / "checkpoint"

    def state(self, name: str, batch: int) -> Path:
        """The state ``name`` after the micro-batch ``batch``."""
        return self.out / "_stream" / "state" / f"{name}-{batch:09d}"


def archive_stream(spark: SparkSession, location: str, plan: StreamPlan) -> DataFrame:
    """Reports and headers of an archive, as its files come to be: in any order, which is all that :func:`start` needs."""
    store = Store(location)
    read = spark.readStream.option("maxFilesPerTrigger", plan.files_per_batch_max)
    reports = read.schema(spark_schema(REPORTS)).parquet(f"{store.root}/reports/*").select(*COLUMNS)
    snapshots = read.schema(spark_schema(SNAPSHOTS)).parquet(f"{store.root}/snapshots/*")
    return reports.unionByName(header_frame(snapshots), allowMissingColumns=True)


def start(fragments: DataFrame, plan: StreamPlan, *, once: bool = False) -> StreamingQuery:
    """Start the query over a stream of :func:`archive_stream`'s columns.

    Verdicts come to lie in ``out/verdicts/batch=N``. ``once``: take what is there, then end.
    """
    writer = fragments.writeStream.option("checkpointLocation", str(plan.checkpoint)).foreachBatch(
        _Batch(plan, fragments.schema)
    )
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")).start()


def verdicts(spark: SparkSession, plan: StreamPlan) -> DataFrame:
    """All verdicts so far. A batch in the making is not among them: its folder comes to be with Spark's commit file."""
    return spark.read.schema(spark_schema(VERDICTS)).parquet(str(plan.out / "verdicts"))


class _Batch:
    """One micro-batch after the other; all that it remembers lies in folders (rule 3)."""

    def __init__(self, plan: StreamPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema

    def __call__(self, rows: DataFrame, batch: int) -> None:
        plan, spark = self._plan, rows.sparkSession
        done = self._before(spark, "done", batch, "snapshot long, begun double")
        waiting = self._before(spark, "pending", batch, self._schema)
        fragments = waiting.unionByName(rows).join(done.select("snapshot"), "snapshot", "left_anti").persist()
        try:
            ready = self._ready(fragments, done).persist()
            finished = fragments.join(ready.select("snapshot"), "snapshot", "left_semi")
            headers = finished.where("process is null").select("snapshot", "begun", "members", "header.*")
            told = verdicts_of_reports(finished.where("process is not null").select(*COLUMNS), plan.predicates, headers=headers)
            _write(told, plan.out / "verdicts" / f"batch={batch}")
            _write(fragments.join(ready.select("snapshot"), "snapshot", "left_anti"), plan.state("pending", batch))
            _write(done.unionByName(ready.select("snapshot", "begun")).coalesce(1), plan.state("done", batch))
        finally:
            fragments.unpersist()
        for name in ("pending", "done"):
            shutil.rmtree(plan.state(name, batch - STATES_KEPT), ignore_errors=True)

    def _before(self, spark: SparkSession, name: str, batch: int, schema: str | StructType) -> DataFrame:
        path = self._plan.state(name, batch - 1)
        return spark.read.schema(schema).parquet(str(path)) if path.exists() else spark.createDataFrame([], schema)

    def _ready(self, fragments: DataFrame, done: DataFrame) -> DataFrame:
        """Rule 1."""
        is_header = F.col("process").isNull()
        silent = F.coalesce(F.max(F.size("header.missing")), F.lit(0))
        each = fragments.groupBy("snapshot").agg(
            F.countDistinct("process").alias("reports"),
            (F.max("members") - silent).alias("expected"),
            F.max(is_header.cast("int")).alias("headers"),
            F.min("begun").alias("begun"),
        )
        newest = fragments.select("begun").unionByName(done.select("begun")).agg(F.max("begun").alias("watermark"))
        complete = F.col("reports") >= F.col("expected")
        if self._plan.headers_expected:
            complete &= F.col("headers") > 0
        late = F.col("begun") + self._plan.give_up_seconds < F.col("watermark")
        return each.crossJoin(F.broadcast(newest)).where(complete | late).select("snapshot", "begun")


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))
