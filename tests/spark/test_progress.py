"""Progress is shown for each finished part of a step."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pyspark.sql import SparkSession

from detector.spark.engine import report_progress, tasks_done


@dataclass
class _Stage:
    numTasks: int  # noqa: N815 - as Spark names it
    numCompletedTasks: int  # noqa: N815


class _Tracker:
    def __init__(self, stages: dict[int, _Stage | None]) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return list(self.stages)

    def getStageInfo(self, stage: int) -> _Stage | None:  # noqa: N802
        return self.stages[stage]


def test_active_stages_are_added_and_ended_ones_skipped() -> None:
    assert tasks_done(_Tracker({3: _Stage(8, 2), 4: None, 5: _Stage(4, 4)})) == (6, 12)
    assert tasks_done(_Tracker({})) == (0, 0)


def test_a_job_is_followed_to_its_end_and_the_thread_ends(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    heard = threading.Event()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        heard.set()

    with report_progress(spark, tell, poll_seconds=0.01):
        for _ in range(50):  # the first of these that takes longer than a poll is heard of
            spark.range(0, 4000, 1, 4).selectExpr("sum(hash(id))").collect()
            if heard.is_set():
                break
    assert told
    assert all(0 <= done <= total for done, total in told)
    assert "stilltrue-progress" not in [thread.name for thread in threading.enumerate()]
