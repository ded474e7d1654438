"""The hostile archives of tests/analysis/test_parity.py through the stream (its workers alone) and through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.spark.analyze import SparkEngine
from detector.spark.batch import table, verdicts_of_archive, verdicts_of_reports
from detector.spark.streaming.pipeline import archive_stream, start, verdicts
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Progress
from stilltrue.model import Holds, Verdict
from tests.spark.streaming.local_workers import streamed_here
from tests.synthetic.hostile_archives import (
    FOREIGN,
    HARMLESS,
    LOSSY,
    NAMES,
    Key,
    harmed,
    verdict_rows,
    wanted,
    without_ids,
    written,
)

FILES_PER_BATCH = 7


@pytest.fixture(scope="module")
def truth() -> Mapping[Key, Verdict]:
    return wanted()


def _streamed(folder: Path, out: Path) -> tuple[dict[Key, Verdict], Progress]:
    """What the stream's workers make of an archive, a few files in each micro-batch."""
    plan = StreamPlan(out=str(out), predicates=NAMES, buckets=3)
    progress = streamed_here(str(folder), plan, FILES_PER_BATCH)
    return verdict_rows(out / "verdicts"), progress


@pytest.mark.parametrize("name", sorted(HARMLESS | FOREIGN))
def test_nothing_that_keeps_every_row_changes_a_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, progress = _streamed(folder, tmp_path / "out")
    assert found == truth
    assert (progress.waiting(), progress.given_up(), progress.late) == (0, 0, 0)


@pytest.mark.parametrize("name", sorted(LOSSY))
def test_what_is_lost_is_counted_and_makes_no_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, progress = _streamed(folder, tmp_path / "out")
    assert {verdict.holds for key, verdict in found.items() if verdict.holds is not truth[key].holds} == {Holds.UNDETERMINED}
    lost = progress.waiting() + progress.given_up()
    assert lost
    assert len(truth) - len(found) == progress.waiting() * len(NAMES)


def test_detectors_without_ids_in_one_folder_get_no_verdict_on_what_both_have_taken(tmp_path: Path) -> None:
    """Both there from the beginning; and one copied there when the other's are finished, which keep their verdicts."""
    first, second = without_ids(tmp_path / "first", 1, 0.0), without_ids(tmp_path / "second", 2, 7.0)
    alone, _ = _streamed(first, tmp_path / "alone")
    shutil.copytree(first, tmp_path / "both")
    shutil.copytree(second, tmp_path / "both", dirs_exist_ok=True)
    found, progress = _streamed(tmp_path / "both", tmp_path / "out")
    assert {number for _, number, _ in found} == {14}, "only one of them has taken it"
    assert progress.mixed.count() == 13
    shutil.copytree(second, first, dirs_exist_ok=True)
    later, progress = _streamed(first, tmp_path / "alone")
    assert progress.mixed.count() == 13
    assert {key: verdict for key, verdict in later.items() if key[1] < 14} == alone
    assert {number for _, number, _ in later} == set(range(1, 15))
    assert all("detectors without an id have written to one folder" in reason for reason in _left_out(tmp_path / "alone"))


def _left_out(out: Path) -> list[str]:
    return [row["reason"] for path in out.glob("left_out/*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.longer
def test_spark_over_all_of_it_at_once(spark: SparkSession, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = written(tmp_path / "archive")
    ours = ("shuffled times", "reordered", "mixed versions", "other days", "compacted twice", "doubled")
    for name in (*ours, "copy under way", "linked", "one row a group", "put together", "other names"):
        HARMLESS[name](folder)
    archive = open_archive(str(folder))
    analyze(SparkEngine(spark), archive, str(tmp_path / "out"), NAMES, progress=lambda _: None)
    assert verdict_rows(tmp_path / "out" / "verdicts") == truth
    plan = StreamPlan(out=str(tmp_path / "stream"), predicates=NAMES)
    query = start(archive_stream(spark, str(folder), plan), plan, location=str(folder), once=True)
    assert query.awaitTermination(300)
    headers = table(spark, archive, "snapshots")
    for frame in (
        verdicts(spark, plan),
        verdicts_of_archive(spark, archive, NAMES),
        verdicts_of_reports(table(spark, archive, "reports"), NAMES, headers=headers),
    ):
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        assert {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in rows} == truth
