"""How far Spark is with a step, for whoever waits at a terminal: tasks done, of those of the stages at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

POLL_SECONDS = 0.5


def parts_done(tracker: Any) -> tuple[int, int]:
    """Tasks done, and all, of the stages that are at work now (``tracker``: of the Spark context)."""
    stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def followed(spark: SparkSession, tell: Callable[[int, int], None], poll_seconds: float = POLL_SECONDS) -> Iterator[None]:
    """While the block runs, ``tell`` hears whenever more of a step is done: how much, and of how much."""
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def follow() -> None:
        told = (0, 0)
        while not over.wait(poll_seconds):
            try:
                now = parts_done(tracker)
            except Exception:  # noqa: BLE001 - Java has gone: the step itself says why
                return
            if now != told and now[1]:
                tell(*now)
                told = now

    thread = threading.Thread(target=follow, name="stilltrue-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
