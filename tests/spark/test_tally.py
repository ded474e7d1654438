"""Counting in the workers gives what plain DataFrames give, and a file that proves torn is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from detector.analysis.counters import TALLY
from detector.analysis.coverage import read_headers
from detector.analysis.tables import totals
from detector.spark import audit, trends
from detector.spark.tables import Archive, open_archive, table
from detector.spark.tally import LEFT_OUT, tally_of_archive

PERIOD = 60.0


@pytest.fixture(scope="module")
def archive(spark: SparkSession, location: Path) -> Archive:
    return open_archive(str(location))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_in_the_workers_as_with_dataframes(spark: SparkSession, archive: Archive) -> None:
    headers = read_headers(archive.store, archive.files("snapshots"))
    found = totals(tally_of_archive(spark, archive, headers.ends()).toArrow().cast(TALLY), PERIOD)
    reports, snapshots = table(spark, archive, "reports"), table(spark, archive, "snapshots")
    wanted = {
        "orphans": audit.orphans(reports),
        "blocked": trends.blocked_time(reports, PERIOD),
        "pools": trends.pool_use(reports),
        "locks": trends.lock_waits(reports, PERIOD),
        "holding": trends.holding_calls(reports),
    }
    for name, frame in wanted.items():
        assert found[name] == _rows(frame), name
    assert all(found[name] for name in wanted if name != "orphans")
    assert headers.coverage() == _rows(trends.coverage(snapshots))
    assert headers.missing() == _rows(audit.missing_members(snapshots))
    clocks = _rows(audit.clock_skew(reports, snapshots))
    assert len(clocks) == len(found["clocks"])
    for row, other in zip(found["clocks"], clocks, strict=True):
        assert row["process"] == other["process"]
        assert row["ahead_seconds"] == other["ahead_seconds"]
        assert row["delay_mean_seconds"] == pytest.approx(other["delay_mean_seconds"], abs=1e-5)


def test_a_torn_file_is_named_and_the_rest_counted(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    shutil.copytree(archive.store.root, tmp_path / "archive")
    copy = open_archive(str(tmp_path / "archive"))
    torn = copy.files("reports")[1]
    data = bytearray(Path(torn.path).read_bytes())
    data[4 : len(data) // 2] = b"\0" * (len(data) // 2 - 4)  # the footer still reads
    Path(torn.path).write_bytes(data)
    ends = read_headers(copy.store, copy.files("snapshots")).ends()
    rows = tally_of_archive(spark, copy, ends).collect()
    assert [row.one for row in rows if row.kind == LEFT_OUT] == [torn.path]
    assert sum(row.samples for row in rows if row.kind == "process") == copy.rows("reports") - torn.rows
