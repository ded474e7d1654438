"""Every row has a position that survives restarts, removal and compaction; gaps between two rows are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles, Positions
from detector.archive.offsets import MICROSECONDS, Index, next_positions
from detector.archive.range_reader import ColumnError, LostError, columns_schema, read_range
from detector.archive.rows.schema import TABLES
from detector.archive.writer import ArchiveWriter
from tests.synthetic.random_snapshots import Judged

NOW = 1_790_000_000.0


def _write(store: ArchiveFiles, run: Judged, first: int, last: int, now: float = NOW) -> None:
    writer = ArchiveWriter(store, reports_max=30, clock=lambda: now)
    for made in run.made[first:last]:
        writer.add(made.assembled, members=made.members)
    writer.flush()


def _index(store: ArchiveFiles, table: str = "snapshots") -> Index:
    index = Index(store, table)
    index.refresh()
    return index


def _read(index: Index, since: int, until: int, *, whole: bool = True, **bounds: int) -> list[tuple[int, int]]:
    """The position and the snapshot of each row."""
    schema = columns_schema(index.table, ["snapshot"])
    found = []
    for batch in read_range(index, since, until, schema=schema, whole=whole, **bounds):
        numbers = batch.rows.column("snapshot").to_pylist()
        assert batch.until - batch.since == len(numbers)
        found += list(zip(range(batch.since, batch.until), numbers, strict=True))
    return found


@pytest.fixture
def store(tmp_path: Path) -> ArchiveFiles:
    return ArchiveFiles(str(tmp_path / "archive"))


def test_positions_continue_across_files_and_runs(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 20)
    first = _index(store)
    assert (first.begin, first.end) == (int(NOW * MICROSECONDS), int(NOW * MICROSECONDS) + 20)
    _write(store, run, 20, 40, NOW + 1)
    index = _index(store)
    rows = _read(index, index.begin, index.end)
    assert [number for _, number in rows] == list(range(1, 41))
    assert rows[20][0] == int((NOW + 1) * MICROSECONDS)
    assert index.lost(index.begin, index.end) is None


def test_a_clock_that_ran_backwards_repeats_no_position(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 20)
    _write(store, run, 20, 40, NOW - 1e6)
    index = _index(store)
    assert [at - index.begin for at, _ in _read(index, index.begin, index.end)] == list(range(40))


@pytest.mark.parametrize("table", ["reports", "snapshots"])
def test_compaction_changes_no_position(store: ArchiveFiles, run: Judged, table: str) -> None:
    _write(store, run, 0, 30)
    _write(store, run, 30, 60, NOW + 1)
    index = _index(store, table)
    before = _read(index, index.begin, index.end)
    files = len(index.pieces)
    compact(store)
    index.refresh()
    assert len(index.pieces) < files
    assert _read(index, index.begin, index.end) == before
    middle = before[len(before) // 2][0]
    assert _read(index, middle, index.end, rows_max=3) == before[len(before) // 2 :]


def test_compaction_does_not_disturb_a_reader(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 30)
    index = _index(store)
    wanted = _read(index, index.begin, index.end)
    batches = read_range(index, index.begin, index.end, schema=columns_schema("snapshots", ["snapshot"]), whole=True)
    first = next(batches).rows.column("snapshot").to_pylist()
    compact(store)
    rest = [number for batch in batches for number in batch.rows.column("snapshot").to_pylist()]
    assert first + rest == [number for _, number in wanted]


def test_removed_rows_are_reported_and_the_rest_can_be_read(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 30)
    index = _index(store)
    begin, end = index.begin, index.end
    wanted = _read(index, begin, end)
    gone = index.pieces[1]
    Path(gone.file.path).unlink()
    with pytest.raises(LostError, match="removed"):
        _read(index, begin, end)
    assert _read(index, begin, end, whole=False) == [row for row in wanted if not gone.first <= row[0] < gone.end]
    assert index.lost(begin, end) == (gone.first, gone.end)
    assert index.lost(begin, gone.first) is None


def test_a_torn_file_is_named(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 30)
    index = _index(store)
    torn = Path(index.pieces[1].file.path)
    torn.write_bytes(b"PAR1")
    index = _index(store)
    with pytest.raises(LostError, match=torn.name):
        _read(index, index.begin, index.end)


def test_files_without_positions_come_before_all_others(store: ArchiveFiles, run: Judged) -> None:
    store.write("snapshots", "2026-01-02", run.snapshots.slice(5, 5))
    store.write("snapshots", "2026-01-01", run.snapshots.slice(0, 5))
    old = _index(store)
    assert (old.begin, old.end) == (-10, 0)
    _write(store, run, 10, 12)
    index = _index(store)
    assert [number for _, number in _read(index, -10, index.end)] == list(range(1, 13))
    Path(old.pieces[0].file.path).unlink()
    index.refresh()
    assert _read(index, -5, 0) == list(zip(range(-5, 0), range(6, 11), strict=True))


def test_the_position_at_which_a_writer_continues(store: ArchiveFiles, run: Judged) -> None:
    now = int(NOW * MICROSECONDS)
    assert next_positions(store, "snapshots", NOW) == Positions(after=0, first=now)
    _write(store, run, 0, 5)
    assert next_positions(store, "snapshots", NOW + 1) == Positions(after=now + 5, first=now + MICROSECONDS)
    for file in store.scan("snapshots").files:
        Path(file.path).write_bytes(b"torn")  # how far it went is not known: nothing is said to be whole
    assert next_positions(store, "snapshots", NOW + 1) == Positions(after=now + MICROSECONDS, first=now + MICROSECONDS)


def test_batches_are_bounded_and_have_the_selected_columns(store: ArchiveFiles, run: Judged) -> None:
    _write(store, run, 0, 20)
    index = _index(store, "reports")
    schema = columns_schema("reports", [])
    batches = list(read_range(index, index.begin, index.end, schema=schema, rows_max=7, bytes_max=20_000))
    assert all(batch.rows.num_rows <= 7 for batch in batches)
    assert sum(batch.rows.num_rows for batch in batches) == index.end - index.begin
    one_each = list(read_range(index, index.begin, index.end, schema=schema, bytes_max=1))
    assert {batch.rows.num_rows for batch in one_each} == {1}
    assert columns_schema("reports", ["process", "snapshot"]).names == ["snapshot", "process"]
    with pytest.raises(ColumnError, match="no column 'x' in reports"):
        columns_schema("reports", ["x"])


def test_an_empty_archive_has_no_positions(store: ArchiveFiles) -> None:
    for table in sorted(TABLES):
        index = _index(store, table)
        assert (index.begin, index.end, index.lost(0, 0)) == (0, 0, None)
