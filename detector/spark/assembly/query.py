"""Runs `stilltrue assemble`: reads the records of all fleets from Kafka or a store, assembles snapshots and evaluates them.

Rules:

1. The state is in RocksDB, next to Spark's record of what was read. An interrupted batch runs again on the same records and the
   same state, with the same results.
2. Records go to the coordinators, which ignore duplicates. Verdicts are written to a temporary folder, counted, and published
   by one rename under the batch's number; a batch that is already published is left as it is.
3. Small files of committed batches are merged before a new batch is published.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.result_folder import CountsError, check_rows, check_unoccupied
from detector.archive.files import ArchiveError
from detector.assembly.cluster import Cluster, RecordsUnavailableError, client
from detector.ops.address import Address
from detector.ops.exposition import exposed
from detector.ops.progress_lines import ProgressLines
from detector.spark.assembly.metrics import AssemblyMetrics, Unread
from detector.spark.assembly.options import source_options
from detector.spark.assembly.processor import OUTPUT, Assembly
from detector.spark.assembly.tally import TallyFile
from detector.spark.assembly.writing import COUNTS, EVENTS, batch_writer
from detector.spark.java import JavaError
from detector.spark.session import SparkFailedError, interruptible, one_line_errors, open_session, stop_session
from detector.spark.streaming.published import Published
from detector.spark.streaming.query import StreamFailedError, follow
from detector.spark.streaming.storage import Storage

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TABLE = "verdicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyPlan:
    """The source of the records, and the destinations of verdicts and state.

    ``state``: a directory that all workers share; ``out``: a directory or URI. ``give_up_seconds``: how long to wait for a
    snapshot's records. ``skew_seconds``: the largest difference between the clocks of Kafka's brokers. The number of
    ``partitions`` is fixed by the first batch.
    """

    cluster: Cluster
    out: str
    state: Path
    give_up_seconds: float = 120.0
    skew_seconds: float = 30.0
    trigger_seconds: float = 0.2
    records_per_batch_max: int = 100_000
    partitions: int = 4
    once: bool = False


def session_settings(plan: AssemblyPlan) -> dict[str, str]:
    """Return the session's settings (rule 1)."""
    return {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.shuffle.partitions": str(plan.partitions),
    }


def start(spark: SparkSession, plan: AssemblyPlan) -> StreamingQuery:
    """Start the query in a session with :func:`session_settings`."""
    source, _ = _source(plan.cluster)
    spark.dataSource.register(source)
    options = source_options(plan.cluster, plan.records_per_batch_max)
    records = (
        spark.readStream.format(source.name()).options(**options).load().withWatermark("at", f"{plan.skew_seconds} seconds")
    )
    output = records.groupBy("key").transformWithState(
        Assembly(plan.give_up_seconds), outputStructType=OUTPUT, outputMode="Append", timeMode="EventTime"
    )
    writer = output.writeStream.outputMode("append").option("checkpointLocation", str(plan.state / "checkpoint"))
    trigger = {"availableNow": True} if plan.once else {"processingTime": f"{plan.trigger_seconds} seconds"}
    return writer.foreachBatch(_Batch(plan)).trigger(**trigger).start()


def _source(cluster: Cluster) -> tuple[type[DataSource], Unread]:
    """Return the data source of a cluster's records, and a function that counts unread records."""
    if cluster.in_objects:
        from detector.spark.assembly.object_source import ObjectSource, unread_objects  # noqa: PLC0415 - Kafka is an extra

        return ObjectSource, partial(unread_objects, cluster)
    from detector.spark.assembly.record_source import RecordSource, UnreadRecords  # noqa: PLC0415

    return RecordSource, UnreadRecords(cluster)


class _Batch:
    """Writes the output of a micro-batch (rule 2)."""

    def __init__(self, plan: AssemblyPlan) -> None:
        self._plan = plan

    def __call__(self, output: DataFrame, batch: int) -> None:
        plan = self._plan
        for old in plan.state.glob("making-*"):
            shutil.rmtree(old, ignore_errors=True)
        folder = plan.state / f"making-{batch}-{uuid4().hex[:8]}" / TABLE
        output.sparkSession.sparkContext.setJobDescription(f"stilltrue: batch {batch}, assembling and evaluating")
        counts = output.mapInArrow(batch_writer(plan.cluster, folder), COUNTS).collect()
        verdicts = sum(row.verdicts for row in counts)
        if verdicts:
            self._publish(folder, batch, verdicts)
        TallyFile(plan.state).add(batch, {name: sum(row[name] for row in counts) for name in (*EVENTS, "verdicts")})

    def _publish(self, folder: Path, batch: int, verdicts: int) -> None:
        """Publish a batch (rules 2 and 3)."""
        plan = self._plan
        written = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
        check_rows(verdicts, written, str(folder), shared="--state")
        state, results = Storage(location=str(plan.state)), Storage(location=plan.out)
        published = Published(results=results, state=state)
        if not results.names(f"{TABLE}/batch={batch}"):
            published.compact(TABLE)
            published.put(str(folder.parent.relative_to(plan.state) / TABLE), TABLE, batch)


@contextmanager
def _exposed(plan: AssemblyPlan, query: StreamingQuery, metrics: Address | None) -> Iterator[str]:
    """Serve ``/metrics`` while the block runs; yield its URL."""
    if metrics is None:
        yield ""
        return
    _, unread = _source(plan.cluster)
    collector = AssemblyMetrics(TallyFile(plan.state), lambda: query.lastProgress, unread)
    with exposed(collector, metrics.host, metrics.port) as port:
        yield f"http://{replace(metrics, port=port)}/metrics"


def run(plan: AssemblyPlan, master: str | None, progress: ProgressLines, metrics: Address | None = None) -> None:
    """Assemble until stopped, and serve metrics at ``metrics``. Raises :class:`StreamFailedError`."""
    try:
        check_unoccupied(plan.out, own=("verdicts/batch=",))
        progress.wait(f"connecting to {plan.cluster.kind} at {plan.cluster.servers} ...")
        client(plan.cluster).make_topics(plan.cluster)
        plan.state.mkdir(parents=True, exist_ok=True)
        progress.wait("starting Spark ...")
        with interruptible():
            spark = open_session(master, session_settings(plan), announced=True)
        try:
            with one_line_errors("Spark failed"):
                with interruptible():
                    query = start(spark, plan)
                with _exposed(plan, query, metrics) as at:
                    progress.wait(f"assembling from {plan.cluster.servers}{f', metrics: {at}' if at else ''} ...")
                    follow(query, progress)
        finally:
            stop_session(spark)
    except (JavaError, RecordsUnavailableError, SparkFailedError, CountsError, ArchiveError) as error:
        raise StreamFailedError(str(error.args[0] if error.args else error)) from None
    except OSError as error:
        raise StreamFailedError(f"{error.filename or plan.state}: {error.strerror or error}") from None
    finally:
        progress.end()
