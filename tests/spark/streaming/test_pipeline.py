"""The stream's verdicts are the service's, each once: across restarts, repeated batches, duplicate and late reports."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from detector.analysis.result_folder import CountsError
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate, find_predicates
from detector.ops.progress_lines import ProgressLines
from detector.spark.session import _retrying
from detector.spark.streaming import query
from detector.spark.streaming.micro_batch import check_count
from detector.spark.streaming.pipeline import archive_stream, start, verdicts
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Folder
from detector.spark.streaming.query import StreamFailedError, StreamOptions
from detector.spark.streaming.storage import Storage
from stilltrue.model import Holds, Verdict
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

DOC = Path(__file__).resolve().parents[3] / "docs" / "pipeline.md"


@pytest.fixture(scope="module")
def short() -> Judged:
    made = random_snapshots(5, 40, WorldShape(missing_share=0.1))
    return judged(made, [find_predicate("deadlock"), find_predicate("termination")])


def _archive(run: Judged, folder: Path, first: int, last: int) -> None:
    writer = ArchiveWriter(ArchiveFiles(str(folder)), reports_max=90, seconds_max=1e9)
    for made in run.made[first:last]:
        writer.add(made.assembled, members=made.members)
    writer.flush()


def _found(spark: SparkSession, plan: StreamPlan) -> list[Verdict]:
    found = [verdict_of(row.asDict(recursive=True)) for row in verdicts(spark, plan).collect()]
    return sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, verdict.predicate))


def _run(spark: SparkSession, folder: Path, plan: StreamPlan) -> None:
    running = start(archive_stream(spark, str(folder), plan), plan, location=str(folder), once=True)
    assert running.awaitTermination(300)
    assert running.exception() is None


def test_the_stream_on_the_page_runs(
    spark: SparkSession, short: Judged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _archive(short, tmp_path / "archive", 0, 10)
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL) if "StreamPlan(" in code]
    code = snippet.replace('"/data/', f'"{tmp_path}/').replace("spark = open_session()\n", "")
    exec(code, {"spark": spark})
    assert "deadlock" in capsys.readouterr().out


@pytest.mark.longer
def test_every_verdict_is_written_once_despite_a_crash(
    spark: SparkSession, short: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock", "termination"))
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 20)
    with monkeypatch.context() as patched:  # as if killed after the batch had been committed and before readers saw it
        patched.setattr(Folder, "publish", lambda *_: None)
        _run(spark, folder, plan)
    assert not (tmp_path / "out" / "verdicts").exists()
    assert _found(spark, plan) == list(short.verdicts[:40])
    shutil.copytree(folder, tmp_path / "again")
    for path in (tmp_path / "again").rglob("reports/*/*.parquet"):  # doubled and late
        shutil.copy(path, folder / path.relative_to(tmp_path / "again").with_name(f"late-{path.name}"))
    _archive(short, folder, 20, 40)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(short.verdicts)


def _options(folder: Path, plan: StreamPlan, *predicates: str) -> StreamOptions:
    return StreamOptions(
        archive=str(folder), options={}, out=plan.out, state="", master=None, predicates=predicates, settings={},
        give_up_seconds=plan.give_up_seconds, late_seconds=plan.late_seconds, metrics=None, once=True,
    )  # fmt: skip


@pytest.mark.longer
def test_a_restart_says_what_it_does_not_judge_again(
    spark: SparkSession, short: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"))
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 5)
    _run(spark, folder, plan)
    monkeypatch.setattr(query, "_stream", lambda *_: plan.folder.last())
    capsys.readouterr()
    query.run(_options(folder, plan), ProgressLines())
    assert capsys.readouterr().err == ""
    query.run(_options(folder, plan, "termination"), ProgressLines())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("termination: evaluated from now on; 5 finished snapshots are not judged again")
    shutil.rmtree(tmp_path / "out" / "verdicts")
    with pytest.raises(StreamFailedError, match="verdicts is gone, and a stream does not judge its 5 finished snapshots again"):
        query.run(_options(folder, plan), ProgressLines())


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_predicate_settings_give_the_services_verdicts(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    settings = {"token-lost": {"expected": 0}}
    wanted = judged(short.made[:8], find_predicates(["token-lost"], settings))
    folder = tmp_path / "archive"
    _archive(wanted, folder, 0, 8)
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("token-lost",), settings=settings)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(wanted.verdicts)
    assert list(wanted.verdicts) != list(judged(short.made[:8], find_predicates(["token-lost"])).verdicts)


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_a_silent_member_is_given_up(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 12)
    shutil.rmtree(folder / "snapshots")  # no header ever comes
    (folder / "snapshots" / "day=none").mkdir(parents=True)
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock",), give_up_seconds=300)
    _run(spark, folder, plan)
    found = {verdict.snapshot.id for verdict in _found(spark, plan)}
    assert found == {1, 2, 3, 4, 5, 6}


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_old_files_in_any_order_with_one_restored_later(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    """Whatever is lost is never a FALSE; when it comes, the verdict is corrected, and is the service's."""
    folder = tmp_path / "archive"
    _archive(short, folder, 0, 40)
    random = Random(3)
    files = sorted(folder.rglob("*.parquet"))
    for path in files:  # older than the seven days that Spark's own source would take
        old = path.stat().st_mtime - random.uniform(8, 16) * 86_400
        os.utime(path, (old, old))
    lost = sorted(folder.rglob("reports/*/*.parquet"))[0]
    kept = lost.rename(tmp_path / lost.name)
    first, last = (int(part) for part in lost.name.split("-")[:2])
    plan = StreamPlan(
        out=str(tmp_path / "out"), predicates=("deadlock", "termination"), give_up_seconds=300, bytes_per_batch_max=60_000
    )
    _run(spark, folder, plan)
    found = {(verdict.snapshot.id, verdict.predicate): verdict for verdict in _found(spark, plan)}
    assert len(found) == len(short.verdicts)
    for verdict in short.verdicts:
        got = found[verdict.snapshot.id, verdict.predicate]
        if first <= (verdict.snapshot.id or 0) <= last:
            assert got.holds is Holds.UNDETERMINED
            assert got.snapshot.members == len(got.missing)
        else:
            assert got == verdict
    kept.rename(lost)
    _run(spark, folder, plan)
    assert _found(spark, plan) == list(short.verdicts)
    progress = plan.folder.last()
    assert progress.corrected == 2 * (last - first + 1)
    assert (progress.waiting(), progress.given_up(), progress.late) == (0, 0, 0)


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_two_detectors_in_one_folder(spark: SparkSession, short: Judged, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for archive, until in (("a", 40), ("b", 25)):
        writer = ArchiveWriter(ArchiveFiles(str(folder)), archive=archive, reports_max=90, seconds_max=1e9)
        for made in short.made[:until]:
            writer.add(made.assembled, members=made.members)
        writer.flush()
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock", "termination"))
    _run(spark, folder, plan)
    frame = verdicts(spark, plan)
    for archive, until in (("a", 40), ("b", 25)):
        rows = frame.where(f"archive = '{archive}'").orderBy("snapshot", "predicate").collect()
        assert [verdict_of(row.asDict(recursive=True)) for row in rows] == list(short.verdicts[: 2 * until])


def test_results_on_a_disk_the_driver_cannot_see_are_an_error_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(CountsError, match=r"^expected 6 verdicts in .*, found 0: do all workers share --out\?"):
        check_count(Storage(location=str(tmp_path)), "verdicts", 6)


def test_a_dead_worker_is_restarted(spark: SparkSession, tmp_path: Path) -> None:
    """Also on one machine, where Spark of itself would give up."""
    assert _retrying("local") == "local[1,4]"
    assert _retrying("local[*]") == "local[*,4]"
    assert _retrying("local[2,9]") == "local[2,9]"
    assert _retrying("spark://host:7077") == "spark://host:7077"
    mark = tmp_path / "died"

    def dies_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not mark.exists():
            mark.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    assert spark.range(0, 10, 1, 1).mapInArrow(dies_once, "id long").count() == 10
    assert mark.exists()
