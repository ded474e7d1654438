"""Spark as an engine of an analysis, with its progress for a terminal."""

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
    """Runs kernels in Spark's workers: a task for each share of the units, and one shuffle where rows are put together."""

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


def parts_done(tracker: Any) -> tuple[int, int]:
    """Tasks done, and all, of the stages that are at work now (``tracker``: of the Spark context)."""
    stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def followed(spark: SparkSession, progress: Callable[[int, int], None], poll_seconds: float = POLL_SECONDS) -> Iterator[None]:
    """While the block runs, ``progress`` is called whenever more of a step is done: how much, and of how much."""
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def follow() -> None:
        shown = (0, 0)
        while not over.wait(poll_seconds):
            try:
                now = parts_done(tracker)
            except Exception:  # noqa: BLE001 - Java has gone: the step itself says why
                return
            if now != shown and now[1]:
                progress(*now)
                shown = now

    thread = threading.Thread(target=follow, name="stilltrue-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
