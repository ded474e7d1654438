"""Spark as the engine of an analysis, with its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from detector.analysis.engine import Kernel
from detector.archive.units import Unit
from detector.spark.batch import over_units, spark_schema

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs kernels in Spark's workers: a task for each share of the units, and one shuffle if rows are merged."""

    spark: SparkSession

    name = "spark"

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """As :meth:`~detector.analysis.engine.Engine.run`."""
        self.spark.sparkContext.setJobDescription(f"stilltrue: {kernel.name}")
        found = over_units(self.spark, location, units, kernel.work, kernel.schema)
        if kernel.keys:

            def merging(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                tables = (pa.Table.from_batches([batch]).cast(kernel.schema) for batch in batches)
                yield from kernel.merge(tables).to_batches()

            partitions = min(self.spark.sparkContext.defaultParallelism, found.rdd.getNumPartitions())
            found = found.repartition(partitions, *kernel.keys).mapInArrow(merging, spark_schema(kernel.schema))
        try:
            return found.toArrow().cast(kernel.schema)
        finally:
            self.spark.sparkContext.setJobDescription("")


def tasks_done(tracker: Any) -> tuple[int, int]:
    """Return the numbers of completed and of all tasks in the active stages; ``tracker`` is the Spark context's."""
    stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def report_progress(
    spark: SparkSession, progress: Callable[[int, int], None], poll_seconds: float = POLL_SECONDS
) -> Iterator[None]:
    """While the block runs, call ``progress`` with the numbers of completed and of all tasks whenever they change."""
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def follow() -> None:
        shown = (0, 0)
        while not done.wait(poll_seconds):
            try:
                now = tasks_done(tracker)
            except Exception:  # noqa: BLE001 - Java is gone; the step itself reports the reason
                return
            if now != shown and now[1]:
                progress(*now)
                shown = now

    thread = threading.Thread(target=follow, name="stilltrue-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
