"""The pipeline's verdicts are the service's: from whole files, from shuffled reports, in any partitioning."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from detector.analysis.kernels import evaluated
from detector.archive.offsets import EVERYTHING, Wanted
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.core.registry import find_predicates
from detector.spark import batch
from detector.spark.batch import _complete_snapshots, table, verdicts_of_archive, verdicts_of_reports
from detector.spark.session import SparkFailedError, one_line_errors
from detector.spark.source.bounds import bounds_of, options_of
from stilltrue.model import Verdict
from tests.synthetic.random_snapshots import Judged, judged

ONE = Wanted(snapshot_min=300, snapshot_max=300)
PREDICATES = ("deadlock", "gridlock", "termination", "token-lost")


def _verdicts(frame: DataFrame) -> list[Verdict]:
    rows = (row.asDict(recursive=True) for row in frame.collect())
    found = [verdict_of(row) for row in rows]
    order = {name: at for at, name in enumerate(PREDICATES)}
    return sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, order[verdict.predicate]))


def test_verdicts_from_whole_files_need_no_shuffle(spark: SparkSession, run: Judged, location: Path) -> None:
    frame = verdicts_of_archive(spark, open_archive(str(location)), PREDICATES)
    assert _verdicts(frame) == list(run.verdicts)


@pytest.mark.parametrize(("partitions", "seed"), [(1, 1), (7, 2)])
def test_verdicts_from_shuffled_and_duplicated_reports(
    spark: SparkSession, run: Judged, location: Path, partitions: int, seed: int
) -> None:
    archive = open_archive(str(location))
    reports = table(spark, archive, "reports")
    doubled = reports.unionByName(reports.sample(fraction=0.3, seed=seed)).repartition(partitions).orderBy(F.rand(seed))
    frame = verdicts_of_reports(doubled, PREDICATES, headers=table(spark, archive, "snapshots"))
    assert _verdicts(frame) == list(run.verdicts)


@pytest.mark.longer
def test_predicate_settings_give_the_services_verdicts(spark: SparkSession, run: Judged, location: Path) -> None:
    names, settings = ("token-lost", "token-duplicated"), {"token-lost": {"expected": 3}}
    wanted = judged(run.made, find_predicates(names, settings)).verdicts
    assert wanted != judged(run.made, find_predicates(names)).verdicts
    archive = open_archive(str(location))
    order = {name: at for at, name in enumerate(names)}
    for frame in (
        verdicts_of_archive(spark, archive, names, settings),
        verdicts_of_reports(
            table(spark, archive, "reports"), names, settings=settings, headers=table(spark, archive, "snapshots")
        ),
    ):
        found = [verdict_of(row.asDict(recursive=True)) for row in frame.collect()]
        assert sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, order[verdict.predicate])) == list(wanted)


def test_a_torn_file_fails_the_job_by_name(spark: SparkSession, location: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(location, copy)
    archive = open_archive(str(copy))
    torn = archive.files("snapshots")[1]
    data = bytearray(Path(torn.path).read_bytes())
    data[4 : len(data) // 2] = b"\0" * (len(data) // 2 - 4)  # the footer still reads
    Path(torn.path).write_bytes(data)
    with pytest.raises(SparkFailedError, match=re.escape(torn.path)), one_line_errors("Spark failed"):
        verdicts_of_archive(spark, archive, ["deadlock"]).collect()


def test_a_partition_of_any_size_is_read_a_few_snapshots_at_a_time(
    spark: SparkSession, run: Judged, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = run.reports.sort_by([("snapshot", "ascending")])
    taken = list(_complete_snapshots(rows.to_batches(max_chunksize=7), 50))
    assert [part.num_rows for part in taken if part.num_rows > 50 + 7 + 6] == []
    numbers = [set(part.column("snapshot").to_pylist()) for part in taken]
    assert sum(map(len, numbers)) == len(set().union(*numbers)) == len(set(rows.column("snapshot").to_pylist()))
    assert sum(part.num_rows for part in taken) == rows.num_rows
    monkeypatch.setattr(batch, "REPORTS_AT_ONCE", 50)
    archive = open_archive(str(location))
    frame = verdicts_of_reports(table(spark, archive, "reports"), PREDICATES, headers=table(spark, archive, "snapshots"))
    assert _verdicts(frame) == list(run.verdicts)


def test_only_wanted_snapshots_are_evaluated(spark: SparkSession, run: Judged, location: Path) -> None:
    archive = open_archive(str(location))
    one = [verdict for verdict in run.verdicts if verdict.snapshot.id == 300]
    assert _verdicts(verdicts_of_archive(spark, archive, PREDICATES, wanted=ONE)) == one
    found = pa.concat_tables(list(evaluated(archive.store, archive.units("snapshots"), find_predicates(["deadlock"]), ONE)))
    assert found.column("snapshot").to_pylist() == [300]
    reports = table(spark, archive, "reports", replace(ONE, day_min="2026-09-21", day_max="2026-09-21"))
    assert {row.snapshot for row in reports.select("snapshot").collect()} == {300}
    assert table(spark, archive, "reports", Wanted(day_max="2000-01-01")).count() == 0


def test_a_dataframe_can_be_filtered_and_used_again(spark: SparkSession, run: Judged, location: Path) -> None:
    """Spark would keep what it has pushed down to a Python source, and the queries after the first would lack rows."""
    frame = verdicts_of_archive(spark, open_archive(str(location)), ["deadlock"])
    numbers = {300: 1, 301: 1}
    for number in numbers:
        assert [row.snapshot for row in frame.where(f"snapshot = {number}").collect()] == [number]
    both = frame.where("snapshot = 300").union(frame.where("snapshot = 301"))
    assert {row.snapshot: 1 for row in both.collect()} == numbers
    assert frame.count() == len(run.made)


def test_bounds_convert_to_options_and_back() -> None:
    for wanted in (EVERYTHING, ONE, Wanted(snapshot_max=7, day_min="2026-09-21"), Wanted(day_max="2026-09-24")):
        assert bounds_of(options_of(wanted)) == wanted
    with pytest.raises(ValueError, match="never"):
        bounds_of({"day_min": "never"})


def test_a_filter_on_the_day_or_the_snapshot_reads_less(spark: SparkSession, location: Path) -> None:
    frame = table(spark, open_archive(str(location)), "reports").where("day = '2026-09-21' and snapshot = 200")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(day" in plan
    assert "EqualTo(snapshot,200)" in plan
    assert {row.day for row in frame.select("day").collect()} == {"2026-09-21"}
