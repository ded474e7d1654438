"""A stream that is started again with other predicates, from an older state, or without its results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detector.archive.rows.row_decoder import verdict_of
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import MAKING, ProgressError
from detector.spark.streaming.storage import Storage
from stilltrue.model import Verdict
from tests.spark.streaming.local_workers import streamed_here
from tests.synthetic.hostile_archives import NAMES, Key, wanted, written

FILES_PER_BATCH = 9
ABOUT_WAITS = ("deadlock", "gridlock")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("again") / "archive")


def _newest(out: str) -> Mapping[Key, Verdict]:
    """The newest revision of each verdict."""
    results = Storage(location=out)
    rows = [row for name in results.sizes("verdicts") for row in pq.read_table(results.read(name)).to_pylist()]
    rows.sort(key=lambda row: row["revision"] or 0)
    return {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in rows}


def _withhold_half(archive: Path, aside: Path) -> None:
    """Move every second report of each snapshot from the archive to files in ``aside``."""
    for file in sorted(archive.glob("reports/*/*.parquet")):
        rows = pq.ParquetFile(file).read()
        even = pa.array([at % 2 == 0 for at in range(rows.num_rows)])
        kept = file.relative_to(archive).with_name(f"{file.stem}-odd.parquet")
        (aside / kept).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.filter(pa.compute.invert(even)), aside / kept)
        pq.write_table(rows.filter(even), file)


def test_snapshots_that_wait_get_no_verdict_for_which_their_reports_were_not_read(archive: Path, tmp_path: Path) -> None:
    """Of reports that wait for ``deadlock`` the stream has no states, which ``termination`` needs."""
    part, aside = tmp_path / "archive", tmp_path / "aside"
    shutil.copytree(archive, part)
    _withhold_half(part, aside)
    plan = StreamPlan(out=str(tmp_path / "out"), predicates=ABOUT_WAITS, buckets=2)
    before = streamed_here(str(part), plan, FILES_PER_BATCH)
    assert (before.waiting() > 0, before.given_up() > 0) == (True, True)
    shutil.copytree(aside, part, dirs_exist_ok=True)
    after = streamed_here(str(part), replace(plan, predicates=NAMES), FILES_PER_BATCH)
    assert (after.waiting(), after.given_up(), after.corrected) == (0, 0, 2 * before.given_up())
    assert _newest(plan.out) == {key: verdict for key, verdict in wanted().items() if key[2] in ABOUT_WAITS}


def test_verdicts_that_are_gone_are_missed_though_an_interrupted_batch_left_a_folder(archive: Path, tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"), buckets=2)
    streamed_here(str(archive), plan, FILES_PER_BATCH)
    shutil.rmtree(tmp_path / "out" / "verdicts")
    plan.state_storage.write(f"{MAKING}000000000009-killed/verdicts/come-0.parquet", b"not committed")
    with pytest.raises(ProgressError, match=r"verdicts is gone, .*: use another --out, or"):
        plan.folder.last_with_results()


def test_with_a_state_elsewhere_both_have_to_be_new(archive: Path, tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"), state=str(tmp_path / "state"), buckets=2)
    streamed_here(str(archive), plan, FILES_PER_BATCH)
    other = StreamPlan(out=str(tmp_path / "other"), state=plan.state, buckets=2)
    with pytest.raises(ProgressError, match=r"other/verdicts is gone, .*: use another --state and --out, or"):
        other.folder.last_with_results()
    StreamPlan(out=other.out, state=str(tmp_path / "other"), buckets=2).folder.last_with_results()


def test_verdicts_of_another_state_are_not_replaced(archive: Path, tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"), state=str(tmp_path / "state"), buckets=2)
    plan.folder.last_with_results()
    streamed_here(str(archive), plan, FILES_PER_BATCH)
    plan.folder.last_with_results()
    other = replace(plan, state=str(tmp_path / "other"))
    with pytest.raises(ProgressError, match=r"out/verdicts has the results of a stream whose state is not in .*/other: "):
        other.folder.last_with_results()


def test_the_predicates_of_an_older_state_are_those_of_its_verdicts(archive: Path, tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path / "out"), buckets=2)
    streamed_here(str(archive), plan, FILES_PER_BATCH)
    name = next(name for name in reversed(plan.state_storage.names()) if name.startswith("commit-"))
    raw = json.loads(plan.state_storage.read(name).to_pybytes())
    del raw["predicates"]
    plan.state_storage.write(name, json.dumps(raw | {"version": 4}).encode())
    assert plan.folder.last().predicates == ()
    assert sorted(plan.folder.last_with_results().predicates) == sorted(ABOUT_WAITS)
