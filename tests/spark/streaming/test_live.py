"""The stream over a live detector: the service's verdicts, complete and partial, and on the published suites, each once."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from detector.archive.files import ArchiveFiles
from detector.archive.offsets import Index
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.core.document.reader import parse_document
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.registry import find_predicate
from detector.core.snapshot import Snapshot
from detector.core.verdict import write_verdict
from detector.service.storage.archive_sink import FOLDER
from detector.spark.batch import verdicts_of_archive
from detector.spark.streaming.pipeline import archive_stream, detector_stream, start, verdicts
from detector.spark.streaming.plan import StreamPlan
from stilltrue.model import CallNumber, Holds, ProcessId, ProcessState, SnapshotId, Verdict, process_of
from stilltrue.protocol.report import Report
from tests.synthetic.random_snapshots import EPOCH_SECONDS, Judged, RandomSnapshot, judged

SUITE = Path(__file__).parents[4] / "shared" / "suites" / "waits-sample.jsonl"
PREDICATES = ("deadlock", "gridlock", "termination", "token-lost")


def _verdicts(frame: Any) -> list[Verdict]:
    order = {name: at for at, name in enumerate(PREDICATES)}
    found = [verdict_of(row.asDict(recursive=True)) for row in frame.collect()]
    return sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, order[verdict.predicate]))


def _end(query: Any) -> None:
    assert query.awaitTermination(300)
    assert query.exception() is None


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_hundreds_of_snapshots_across_restarts_of_stream_and_detector(
    spark: SparkSession, run: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    patience = 1e9  # the snapshots of `run` begin anew in time twice
    plan = StreamPlan(
        out=str(tmp_path / "out"), predicates=PREDICATES, give_up_seconds=patience, rows_per_batch_max=1500, buckets=3
    )
    for first, last in ((0, 350), (350, len(run.made))):
        archived(run, tmp_path, first, last, reports_max=700)
        with serving(tmp_path) as address:
            _end(start(detector_stream(spark, {"address": address}, plan), plan, once=True))
    assert _verdicts(verdicts(spark, plan)) == list(run.verdicts)
    progress = plan.folder.last()
    assert [each.intervals for each in progress.finished.values()] == [((1, len(run.made)),)]
    assert progress.waiting() == 0


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_the_stream_writes_the_same_table_as_a_batch(spark: SparkSession, run: Judged, archived: Any, tmp_path: Path) -> None:
    """Every column of it: findings too, from which incidents and near misses are made."""
    archived(run, tmp_path, 0, 120, reports_max=700)
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock",), buckets=3)
    folder = str(tmp_path / FOLDER)
    _end(start(archive_stream(spark, folder, plan), plan, location=folder, once=True))
    batch = verdicts_of_archive(spark, open_archive(folder), ("deadlock",))
    assert _plain(verdicts(spark, plan)) == _plain(batch)


def _plain(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["snapshot"])


@pytest.mark.longer
def test_a_torn_file_is_named_and_the_rest_evaluated(spark: SparkSession, run: Judged, archived: Any, tmp_path: Path) -> None:
    store: ArchiveFiles = archived(run, tmp_path, 0, 40, reports_max=60)
    index = Index(store, "reports")
    index.refresh()
    torn = Path(index.pieces[1].file.path)
    torn.write_bytes(b"PAR1")
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock",), give_up_seconds=60, buckets=3)
    _end(start(archive_stream(spark, store.location, plan), plan, location=store.location, once=True))
    rows = verdicts(spark, plan).collect()
    left_out = pq.read_table(f"{plan.out}/left_out").to_pylist()
    assert [row["path"] for row in left_out] == [str(torn)]
    lost = range(*_snapshots(torn))
    found = {verdict.snapshot.id: verdict for verdict in map(verdict_of, (row.asDict(recursive=True) for row in rows))}
    assert set(found) == set(range(1, 41))
    assert all(found[each.snapshot.id] == each for each in run.verdicts[:160:4] if (each.snapshot.id or 0) not in lost)
    assert not any(found[SnapshotId(number)].holds is Holds.FALSE for number in lost)


def _snapshots(path: Path) -> tuple[int, int]:
    first, last = path.name.split("-")[:2]
    return int(first), int(last) + 1


@pytest.fixture
def suite() -> list[dict[str, Any]]:
    if not SUITE.exists() and os.environ.get("STILLTRUE_REQUIRE_SHARED") != "1":
        pytest.skip("the published suites are not beside this checkout (../shared)")
    return [json.loads(line) for line in SUITE.read_text(encoding="utf-8").splitlines()]


@pytest.mark.longer
def test_the_published_wait_graphs(
    spark: SparkSession, suite: list[dict[str, Any]], serving: Any, archived: Any, tmp_path: Path
) -> None:
    snapshots = [parse_document(json.dumps({"waits": each["waits"]}))[1] for each in suite]
    made = [_finished(number, snapshot) for number, snapshot in enumerate(snapshots, start=1)]
    found = judged(made, [find_predicate("deadlock")])
    archived(found, tmp_path, 0, len(made))
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=("deadlock",), buckets=3)
    with serving(tmp_path) as address:
        _end(start(detector_stream(spark, {"address": address}, plan), plan, once=True))
    streamed = _verdicts(verdicts(spark, plan))
    assert streamed == list(found.verdicts)
    assert streamed == _verdicts(verdicts_of_archive(spark, open_archive(str(tmp_path / FOLDER)), ("deadlock",)))
    for document, verdict in zip(suite, streamed, strict=True):
        written = write_verdict(verdict)
        assert {key: written[key] for key in document["expect"]} == document["expect"], document["id"]


def _finished(number: int, snapshot: Snapshot) -> RandomSnapshot:
    """A snapshot document as a detector would have assembled it of its processes' reports."""
    begun = EPOCH_SECONDS + 60.0 * number
    names = sorted({process_of(name) for name in snapshot.waits.names})
    members = {name: ProcessId(service=name, instance=name, incarnation=1) for name in names}
    ref = replace(snapshot.ref, id=SnapshotId(number), scope="all", begun=begun, ended=begun + 0.1, members=len(members))
    reports = {
        name: Report(
            process=member, snapshot=SnapshotId(number), after=SnapshotId(number - 1), cut_at=begun,
            next_number=CallNumber(1),
        )
        for name, member in members.items()
    }  # fmt: skip
    states = {name: snapshot.processes.get(name, ProcessState()) for name in names}
    reported = replace(snapshot, ref=ref, processes=states)
    whole = Assembled(snapshot=reported, outcome=Outcome.COMPLETE, begun_by="period", reports=reports)
    return RandomSnapshot(assembled=whole, members=members)
