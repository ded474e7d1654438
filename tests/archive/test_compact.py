"""Compaction neither loses nor duplicates rows, whenever it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from detector.archive.compact import LOCK, Compacted, compact, last_day
from detector.archive.directory_lock import directory_lock
from detector.archive.files import ArchiveError, ArchiveFile, ArchiveFiles
from detector.archive.offsets import in_order
from detector.archive.writer import ArchiveWriter
from tests.synthetic.random_snapshots import Judged


@pytest.fixture
def store(tmp_path: Path, run: Judged) -> ArchiveFiles:
    store = ArchiveFiles(str(tmp_path / "archive"))
    writer = ArchiveWriter(store, reports_max=30)
    for made in run.made[:60]:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


def _rows(store: ArchiveFiles, table: str) -> pa.Table:
    return pa.concat_tables([data for file in store.scan(table).files for data in store.read(file)])


def test_small_files_become_one_with_the_same_rows(store: ArchiveFiles) -> None:
    before = {table: _rows(store, table) for table in ("reports", "snapshots")}
    files = sum(len(store.scan(table).files) for table in ("reports", "snapshots"))
    assert compact(store) == Compacted(before=files, after=2, left_out=())
    assert compact(store) == Compacted(before=0, after=0, left_out=())
    for table, rows in before.items():
        days = {file.day for file in store.scan(table).files}
        assert len(store.scan(table).files) == len(days)
        assert _rows(store, table).to_pylist() == rows.to_pylist()


def test_a_compaction_interrupted_before_it_removes_the_old_files_is_completed(
    store: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _rows(store, "reports").to_pylist()
    monkeypatch.setattr(store, "remove", lambda _paths: None)
    compact(store)
    assert _rows(store, "reports").to_pylist() == before
    monkeypatch.undo()
    assert len(list(Path(store.root).glob("reports/*/*.parquet"))) > len(store.scan("reports").files)
    compact(store)
    assert len(list(Path(store.root).glob("reports/*/*.parquet"))) == len(store.scan("reports").files)
    assert _rows(store, "reports").to_pylist() == before


def test_a_torn_file_is_kept_and_named(store: ArchiveFiles) -> None:
    torn = Path(store.scan("snapshots").files[0].path)
    kept = sum(file.rows for file in store.scan("snapshots").files[1:])
    torn.write_bytes(b"PAR1")
    assert [Path(left.path) for left in compact(store).left_out] == [torn]
    assert torn.exists()
    assert _rows(store, "snapshots").num_rows == kept


def test_a_file_torn_inside_is_kept_and_the_others_are_merged(store: ArchiveFiles) -> None:
    files = store.scan("snapshots").files
    torn = Path(files[2].path)
    data = bytearray(torn.read_bytes())
    data[4:104] = b"\0" * 100  # the footer still reads
    torn.write_bytes(data)
    assert [Path(left.path) for left in compact(store).left_out] == [torn]
    rows = [file.rows for file in store.scan("snapshots").files]
    assert rows == [sum(file.rows for file in files[:2]), files[2].rows, sum(file.rows for file in files[3:])]
    assert not list(torn.parent.glob("_*"))


def test_files_with_overlapping_snapshots_are_not_merged(store: ArchiveFiles, run: Judged) -> None:
    writer = ArchiveWriter(store, reports_max=30)
    for made in run.made[58:62]:  # two of them once more, as if they had ended late
        writer.add(made.assembled, members=made.members)
    writer.flush()
    before = in_order(store.scan("snapshots").files)
    rows = [row for piece in before for data in store.read(piece.file) for row in data.column("snapshot").to_pylist()]
    compact(store)
    after = in_order(store.scan("snapshots").files)
    assert 1 < len(after) < len(before)
    assert [row for piece in after for data in store.read(piece.file) for row in data.column("snapshot").to_pylist()] == rows
    for piece in after:
        numbers = [row for data in store.read(piece.file) for row in data.column("snapshot").to_pylist()]
        assert numbers == sorted(numbers)


def test_recent_days_are_not_compacted(store: ArchiveFiles) -> None:
    days = store.days("snapshots")
    assert compact(store, until=last_day(0.0, 1)).before == 0
    assert last_day(1_790_000_000.0, 0) == "2026-09-20"
    assert last_day(1_790_000_000.0, 86_400) == "2026-09-19"
    assert compact(store, until=days[-1]).before


def test_one_compaction_runs_at_a_time(store: ArchiveFiles) -> None:
    with (
        directory_lock(store, LOCK, "this test"),
        pytest.raises(ArchiveError, match="another compaction is in progress"),
    ):
        compact(store)
    assert compact(store).before


def test_duplicates_left_by_an_interruption_are_removed(store: ArchiveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two interruptions the second new file also replaces the files that the first one had replaced."""
    before = _rows(store, "reports").to_pylist()
    names = {path.name for path in Path(store.root).glob("reports/*/*.parquet")}
    sizes = sorted(file.bytes for file in store.scan("reports").files)
    monkeypatch.setattr(store, "remove", lambda _paths: None)
    compact(store, bytes_target=2 * sizes[-1])
    half = {file.name for file in store.scan("reports").files}
    compact(store)
    (whole,) = [file for file in store.scan("reports").files if file.replaces]
    assert set(whole.replaces) >= (names | half) - {whole.name}
    for name in half - names:  # the first one's new files go first, as a crash may leave it
        next(Path(store.root).glob(f"reports/*/{name}")).unlink()
    assert _rows(store, "reports").to_pylist() == before
    monkeypatch.undo()
    compact(store)
    assert _rows(store, "reports").to_pylist() == before
    assert len(list(Path(store.root).glob("reports/*/*.parquet"))) == 1


def test_a_truncated_file_is_torn_and_loses_no_row(store: ArchiveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    short = store.scan("reports").files[1]
    count = _rows(store, "reports").num_rows
    read = ArchiveFiles.read

    def forgetful(self: ArchiveFiles, file: ArchiveFile, **how: Any) -> Iterator[pa.Table]:
        for rows in read(self, file, **how):
            yield rows.slice(1) if file.path == short.path else rows

    monkeypatch.setattr(ArchiveFiles, "read", forgetful)
    left = [each for each in compact(store).left_out if each.path == short.path]
    assert [each.reason for each in left] == [f"{short.rows - 1} rows instead of {short.rows}"]
    monkeypatch.undo()
    assert Path(short.path).exists()
    assert _rows(store, "reports").num_rows == count


def test_row_groups_stay_small_and_no_row_is_lost_between_them(store: ArchiveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _rows(store, "reports").to_pylist()
    monkeypatch.setattr("detector.archive.compact.GROUP_BYTES_MAX", 1)
    compact(store)
    (whole,) = store.scan("reports").files
    assert whole.groups > 1
    assert _rows(store, "reports").to_pylist() == before
