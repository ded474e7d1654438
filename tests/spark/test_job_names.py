"""Spark's pages show the purpose of each job instead of "parquet at NativeMethodAccessorImpl"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.archive.units import open_archive
from detector.spark.engine import SparkEngine
from detector.spark.streaming.pipeline import archive_stream, start
from detector.spark.streaming.plan import StreamPlan


def _jobs(spark: SparkSession) -> dict[int, str]:
    """By id, what each job is called on Spark's pages: its description, or else its call site."""
    found = _listed(spark)
    return {job.jobId(): job.description().get() if job.description().isDefined() else job.name() for job in found}


def _listed(spark: SparkSession) -> list[Any]:
    found = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return [found.apply(at) for at in range(found.size())]


@pytest.mark.longer
def test_every_job_of_an_analysis_and_of_a_stream_has_a_name_of_ours(
    spark: SparkSession, location: Path, tmp_path: Path
) -> None:
    before = _jobs(spark).keys()
    analyze(SparkEngine(spark), open_archive(str(location)), str(tmp_path / "out"), ("deadlock",), progress=lambda _: None)
    analysed = {at: name for at, name in _jobs(spark).items() if at not in before}
    plan = StreamPlan(out=str(tmp_path / "stream"), predicates=("deadlock",), bytes_per_batch_max=200_000)
    query = start(archive_stream(spark, str(location), plan), plan, location=str(location), once=True)
    assert query.awaitTermination(300)
    assert query.exception() is None
    streamed = {at: name for at, name in _jobs(spark).items() if at not in before and at not in analysed}
    assert {"stilltrue: evaluate snapshots", "stilltrue: count reports"} <= set(analysed.values())
    assert "stilltrue: batch 0, assembling and evaluating" in streamed.values()
    assert [name for name in (*analysed.values(), *streamed.values()) if not name.startswith("stilltrue: ")] == []


def test_few_reports_are_one_task_a_kernel(spark: SparkSession, location: Path, tmp_path: Path) -> None:
    """Each further task starts a Python worker, which takes a second; a shuffle of one task's rows would be one."""
    archive = open_archive(str(location))
    assert len(archive.units("reports")) > 1
    for name, engine in (("few", SparkEngine(spark)), ("many", SparkEngine(spark, reports_per_task_min=100))):
        before = {job.jobId() for job in _listed(spark)}
        analyze(engine, archive, str(tmp_path / name), ("deadlock",), progress=lambda _: None)
        tasks = [job.numTasks() for job in _listed(spark) if job.jobId() not in before]
        assert len(tasks) >= 2
        assert (max(tasks) == 1) == (name == "few")
