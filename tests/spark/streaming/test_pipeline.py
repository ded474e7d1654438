"""The stream's verdicts are the service's, each once: over restarts, batches run again, doubled and late reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from detector.archive.files import Store
from detector.archive.row_decoder import verdict_of
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate, find_predicates
from detector.spark.streaming.pipeline import StreamPlan, archive_stream, start, verdicts
from detector.synthetic.snapshots import Judged, WorldShape, judged, random_snapshots
from stilltrue.model import Verdict


@pytest.fixture(scope="module")
def short() -> Judged:
    made = random_snapshots(5, 40, WorldShape(missing_share=0.1))
    return judged(made, [find_predicate("deadlock"), find_predicate("termination")])


def _archive(run: Judged, folder: Path, first: int, last: int) -> None:
    writer = ArchiveWriter(Store(str(folder)), reports_max=90, seconds_max=1e9)
    for made in run.made[first:last]:
        writer.add(made.assembled, members=made.members)
    writer.flush()


def _found(spark: SparkSession, plan: StreamPlan) -> list[Verdict]:
    found = [verdict_of(row.asDict(recursive=True)) for row in verdicts(spark, plan).collect()]
    return sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, verdict.predicate))


def _run(spark: SparkSession, folder: Path, plan: StreamPlan) -> None:
    query = start(archive_stream(spark, str(folder), plan), plan, location=str(folder), once=True)
    assert query.awaitTermination(300)
    assert query.exception() is None


def test_in_pieces_with_a_crash_between_every_verdict_is_there_once(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    plan = StreamPlan(out=tmp_path / "out", predicates=("deadlock", "termination"))
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 20)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(short.verdicts[:40])
    last = max(int(path.name) for path in (plan.checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (plan.checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()  # as if killed after the batch had written and before Spark knew
    shutil.copytree(folder, tmp_path / "again")
    for path in (tmp_path / "again").rglob("reports/*/*.parquet"):  # doubled and late
        shutil.copy(path, folder / path.relative_to(tmp_path / "again").with_name(f"late-{path.name}"))
    _archive(short, folder, 20, 40)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(short.verdicts)


def test_with_settings_as_the_service_has_them(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    settings = {"token-lost": {"expected": 0}}
    wanted = judged(short.made[:8], find_predicates(["token-lost"], settings))
    folder = tmp_path / "archive"
    _archive(wanted, folder, 0, 8)
    plan = StreamPlan(out=tmp_path / "out", predicates=("token-lost",), settings=settings)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(wanted.verdicts)
    assert list(wanted.verdicts) != list(judged(short.made[:8], find_predicates(["token-lost"])).verdicts)


def test_who_never_reports_is_given_up(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 12)
    shutil.rmtree(folder / "snapshots")  # no header ever comes
    (folder / "snapshots" / "day=none").mkdir(parents=True)
    plan = StreamPlan(out=tmp_path / "out", predicates=("deadlock",), give_up_seconds=300)
    _run(spark, folder, plan)
    found = {verdict.snapshot.id for verdict in _found(spark, plan)}
    assert found == {1, 2, 3, 4, 5, 6}
