"""A stream interrupted at any of its writes continues from its state alone, on a disk and in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.spark.streaming import published
from detector.spark.streaming.micro_batch import LOGS_MAX, MicroBatches
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Folder, ProgressError
from detector.spark.streaming.storage import Storage
from stilltrue.model import Verdict
from tests.spark.streaming.local_workers import LocalWorkers, streamed_here
from tests.synthetic.hostile_archives import NAMES, Key, wanted, written
from tests.synthetic.object_storage import BUCKET, object_storage

FILES_PER_BATCH = 9
STEPS = ("write", "remove", "remove_folder", "copy")
"""What a stream does to its storage; between any two of these it may be killed."""


class CutError(BaseException):
    """As if the process were killed here."""


@pytest.fixture(scope="module")
def truth() -> Mapping[Key, Verdict]:
    return wanted()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cut") / "archive")


@pytest.fixture(scope="module")
def storage() -> Iterator[fs.FileSystem]:
    with object_storage() as made:
        yield made


def _cut_at(patched: pytest.MonkeyPatch, number: int, after: bool) -> list[str]:
    """Cut the ``number``-th of the steps short, before it or right after it; the steps that were begun."""
    begun: list[str] = []

    def cutting(name: str) -> None:
        real = getattr(Storage, name)

        def step(self: Storage, *arguments: object) -> object:
            begun.append(name)
            if len(begun) == number and not after:
                raise CutError
            found = real(self, *arguments)
            if len(begun) >= number:
                raise CutError
            return found

        patched.setattr(Storage, name, step)

    for name in STEPS:
        cutting(name)
    return begun


def _found(out: Storage) -> dict[Key, Verdict]:
    """The verdicts as a reader of the folders finds them: each once."""
    rows = [
        row
        for name in out.sizes("verdicts")
        if name.endswith(".parquet") and "/_" not in name
        for row in pq.ParquetFile(out.read(name)).read().to_pylist()
    ]
    found = {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in rows}
    assert len(found) == len(rows), "a verdict is there twice"
    return found


def _again_and_again(archive: str, out: str, truth: Mapping[Key, Verdict], every: int, patched: pytest.MonkeyPatch) -> int:
    """Cut short at every ``every``-th step, each in a stream of its own; how many of them."""
    cuts = 0
    for number in range(1, 1000, every):
        plan = StreamPlan(out=f"{out}/{number}", predicates=NAMES, buckets=2)
        with patched.context() as cut:
            steps = _cut_at(cut, number, after=number % 4 < 2)
            try:
                streamed_here(archive, plan, FILES_PER_BATCH)
            except CutError:
                cuts += 1
        progress = streamed_here(archive, plan, FILES_PER_BATCH)
        assert _found(Storage(location=plan.out)) == truth, number
        assert (progress.waiting(), progress.given_up(), progress.late) == (0, 0, 0)
        assert {name.partition("-")[0] for name in plan.state_storage.names()} <= {"commit", "epoch", "read", "pending"}
        assert plan.state_storage.folders() == []
        if len(steps) < number:
            break
    return cuts


@pytest.mark.longer
def test_a_stream_on_a_disk_survives_an_interruption_anywhere(
    archive: Path, truth: Mapping[Key, Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "BATCHES_MIN", 3)
    assert _again_and_again(str(archive), str(tmp_path), truth, 2, monkeypatch) > 10


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_a_stream_in_an_object_store_survives_an_interruption_anywhere(
    storage: fs.FileSystem, archive: Path, truth: Mapping[Key, Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.copy_files(str(archive), f"{BUCKET}/archive", destination_filesystem=storage)
    monkeypatch.setattr(published, "BATCHES_MIN", 3)
    assert _again_and_again(f"s3://{BUCKET}/archive", f"s3://{BUCKET}/out", truth, 5, monkeypatch) >= 4


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_state_and_results_may_be_on_different_storage(
    storage: fs.FileSystem, archive: Path, truth: Mapping[Key, Verdict], tmp_path: Path
) -> None:
    for at, (out, state) in enumerate([(str(tmp_path / "out"), f"s3://{BUCKET}/s"), (f"s3://{BUCKET}/r", str(tmp_path / "s"))]):
        plan = StreamPlan(out=out, state=state, predicates=NAMES, buckets=2)
        streamed_here(str(archive), plan, FILES_PER_BATCH)
        assert _found(Storage(location=out)) == truth, at
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "s"]


def test_the_later_of_two_streams_with_one_state_continues(archive: Path, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path), predicates=NAMES, buckets=2)
    store = ArchiveFiles(str(archive))
    files = [
        {"table": table, "path": entry.path, "bytes": entry.size}
        for table in ("snapshots", "reports")
        for day in store.days(table)
        for entry in store.entries(table, day)
    ]
    first = MicroBatches(plan, str(archive), plan.folder.begin())
    first.run(LocalWorkers(files[:5]))
    progress = streamed_here(str(archive), plan, FILES_PER_BATCH)
    with pytest.raises(ProgressError, match="another stream has started with the same state"):
        first.run(LocalWorkers(files[5:]))
    assert plan.folder.last() == progress
    assert _found(Storage(location=plan.out)) == truth
    assert streamed_here(str(archive), plan, FILES_PER_BATCH) == progress, "nothing is left of the earlier one, or to be read"


def test_two_streams_that_start_at_once_notice_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(state=Storage(location=str(tmp_path)), results=Storage(location=str(tmp_path)))
    write = Storage.write

    def both(self: Storage, name: str, content: bytes) -> None:
        write(self, name, content)
        write(self, f"{name.rpartition('-')[0]}-other.json", content)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "write", both)
        with pytest.raises(ProgressError, match="another stream"):
            folder.begin()
    assert folder.begin().number == 2


def test_logs_of_read_files_are_merged_without_removed_files(archive: Path, tmp_path: Path) -> None:
    plan = StreamPlan(out=str(tmp_path), predicates=("deadlock",), buckets=2)
    epoch = plan.folder.begin()
    state = plan.state_storage
    logs = tuple(f"read-{at:012d}-x.json" for at in range(LOGS_MAX))
    for name in logs:
        state.write(name, json.dumps({f"/gone/{name}": 3}).encode())
    plan.folder.commit(replace(plan.folder.last(), batch=0, logs=logs), epoch)
    progress = streamed_here(str(archive), plan, 10**6)
    assert len(progress.logs) == 1
    assert set(plan.folder.sizes(progress)) == {str(path) for path in archive.glob("[rs]*/*/*.parquet")}


def test_results_of_many_batches_are_merged_while_the_stream_runs(
    archive: Path, truth: Mapping[Key, Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = StreamPlan(out=str(tmp_path), predicates=NAMES, buckets=2)
    monkeypatch.setattr(published, "BATCHES_MIN", 3)
    progress = streamed_here(str(archive), plan, 1)
    files = [name for name in Storage(location=plan.out).sizes("verdicts") if name.endswith(".parquet")]
    assert progress.batch > 10
    assert len(files) <= 4
    assert _found(Storage(location=plan.out)) == truth
