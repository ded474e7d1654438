"""The hostile archives of tests/analysis/test_parity.py through the stream (its workers alone) and through Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicates
from detector.spark.batch import table, verdicts_of_archive, verdicts_of_reports
from detector.spark.engine import SparkEngine
from detector.spark.streaming.pipeline import archive_stream, start, verdicts
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Progress
from stilltrue.model import Holds, Verdict
from tests.spark.streaming.local_workers import StreamHere, streamed_here
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
from tests.synthetic.random_snapshots import RandomSnapshot, judged, random_snapshots

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


@pytest.mark.parametrize(
    "name", ["reports torn", *(pytest.param(one, marks=pytest.mark.longer) for one in sorted(LOSSY.keys() - {"reports torn"}))]
)
def test_losses_are_counted_and_cause_no_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, progress = _streamed(folder, tmp_path / "out")
    assert {verdict.holds for key, verdict in found.items() if verdict.holds is not truth[key].holds} == {Holds.UNDETERMINED}
    lost = progress.waiting() + progress.given_up()
    assert lost
    assert len(truth) - len(found) == progress.waiting() * len(NAMES)


def test_detectors_without_ids_get_no_verdict_on_numbers_both_used(tmp_path: Path) -> None:
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
    assert all("detectors without an id have written to the same folder" in reason for reason in _left_out(tmp_path / "alone"))


def _left_out(out: Path) -> list[str]:
    return [row["reason"] for path in out.glob("left_out/*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.longer
def test_spark_over_all_archives_at_once(spark: SparkSession, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
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


@pytest.mark.parametrize("restarted", [True, pytest.param(False, marks=pytest.mark.longer)])
def test_a_repaired_file_of_the_same_size_is_read(truth: Mapping[Key, Verdict], tmp_path: Path, *, restarted: bool) -> None:
    """A copy that takes all its space first; the stream starts again meanwhile, or looks again by itself."""
    folder = harmed(tmp_path / "archive", "as written")
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=NAMES, buckets=3)
    whole = {path: path.read_bytes() for path in sorted(folder.rglob("*.parquet"))[::3]}
    for path, content in whole.items():
        path.write_bytes(content[:40] + bytes(len(content) - 40))
    (folder / "reports" / "notes.parquet").write_text("beside the days")
    stream = StreamHere(str(folder), plan)
    torn = stream.run(FILES_PER_BATCH).torn
    assert set(torn) == {str(path) for path in whole}
    assert verdict_rows(tmp_path / "out" / "verdicts") != truth
    assert stream.run(FILES_PER_BATCH).batch == plan.folder.last().batch, "nothing has changed"
    for path, content in whole.items():
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
    stream = StreamHere(str(folder), plan) if restarted else stream
    assert stream.run(FILES_PER_BATCH).torn == ()
    assert verdict_rows(tmp_path / "out" / "verdicts") == truth
    done = plan.folder.last().batch
    for path in whole:
        os.utime(path)
    assert stream.run(FILES_PER_BATCH).batch == done, "files that have been read are not read again for their times"


def test_a_removed_torn_file_is_no_longer_listed(tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", "foreign files")
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=NAMES, buckets=3)
    assert len(streamed_here(str(folder), plan, FILES_PER_BATCH).torn) == 6
    for path in folder.rglob("notes.parquet"):
        path.unlink()
    (left, *_) = sorted(folder.rglob("prices.parquet"))
    left.unlink()
    assert len(streamed_here(str(folder), plan, FILES_PER_BATCH).torn) == 3


@pytest.mark.parametrize("shift_seconds", [10 * 365 * 86_400.0, -3 * 86_400.0])
@pytest.mark.parametrize("lasts", [1, 30])
@pytest.mark.longer
def test_a_clock_step_makes_no_report_late(tmp_path: Path, shift_seconds: float, lasts: int) -> None:
    """It leaps and comes back, or stays there; the header of a snapshot comes a batch before its reports."""
    run = judged(
        [
            _at(made, shift_seconds if 10 <= number < 10 + lasts else 0.0)
            for number, made in enumerate(random_snapshots(5, 40), 1)
        ],
        find_predicates(NAMES),
    )
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=NAMES, buckets=2)
    store = ArchiveFiles(str(tmp_path / "archive"))
    writer = ArchiveWriter(store, archive="one", reports_max=20, seconds_max=1e9)
    stream = StreamHere(store.location, plan)
    for number, made in enumerate(run.made, 1):
        writer.add(made.assembled, members=made.members)
        if not number % 3:
            writer.flush()
            stream.run(1)
    writer.flush()
    progress = stream.run(1)
    assert verdict_rows(tmp_path / "out" / "verdicts") == {
        ("one", verdict.snapshot.id, verdict.predicate): verdict for verdict in run.verdicts
    }
    assert (progress.waiting(), progress.given_up(), progress.late) == (0, 0, 0)


def _at(made: RandomSnapshot, shift_seconds: float) -> RandomSnapshot:
    """The snapshot as a detector takes it whose clock is off by so much."""
    snapshot = made.assembled.snapshot
    begun, ended = (snapshot.ref.begun or 0.0) + shift_seconds, (snapshot.ref.ended or 0.0) + shift_seconds
    ref = replace(snapshot.ref, begun=begun, ended=ended)
    return replace(made, assembled=replace(made.assembled, snapshot=replace(snapshot, ref=ref)))
