"""Spark as the engine of an analysis, with its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from detector.analysis.engine import Kernel, reports_of
from detector.archive.files import ArchiveFiles
from detector.archive.units import Unit, shares
from detector.archive.without_pandas import hide_pandas
from detector.spark.batch import UNITS_PER_CORE, over_parts, spark_schema

POLL_SECONDS = 0.5
REPORTS_PER_TASK_MIN = 100_000
"""With fewer reports a task is not worth the start-up time of its Python worker (about a second)."""
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a session that only runs kernels: Java passes a few rows on, for which generating and compiling code is slow."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs kernels in Spark's workers: a task for each share of the units, and one shuffle if rows of several are merged.

    ``without_pandas``: whether the session runs nothing else, so that its workers need not load pandas.
    """

    spark: SparkSession
    reports_per_task_min: int = REPORTS_PER_TASK_MIN
    without_pandas: bool = False

    name = "spark"

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """As :meth:`~detector.analysis.engine.Engine.run`."""
        context = self.spark.sparkContext
        context.setJobDescription(f"stilltrue: {kernel.name}")
        tasks = min(UNITS_PER_CORE * context.defaultParallelism, int(reports_of(units, kernel) // self.reports_per_task_min))
        parts = shares(units, max(1, tasks))
        found = over_parts(self.spark, location, parts, self._work(kernel), kernel.schema)
        if kernel.keys and len(parts) > 1:

            def merging(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                tables = (pa.Table.from_batches([batch]).cast(kernel.schema) for batch in batches)
                yield from kernel.merge(tables).to_batches()

            partitions = min(context.defaultParallelism, len(parts))
            found = found.repartition(partitions, *kernel.keys).mapInArrow(merging, spark_schema(kernel.schema))
        try:
            rows = found.toArrow().cast(kernel.schema)
        finally:
            context.setJobDescription("")
        return kernel.merge([rows]) if len(parts) == 1 else rows

    def _work(self, kernel: Kernel) -> Callable[[ArchiveFiles, Iterable[Unit], int], Iterator[pa.Table]]:
        if not self.without_pandas:
            return kernel.work

        def work(store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
            hide_pandas()
            return kernel.work(store, units, part)

        return work


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
