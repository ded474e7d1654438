"""Compaction loses nothing, doubles nothing, whenever it is cut short."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from detector.archive.compact import compact
from detector.archive.store import Store
from detector.archive.worlds import Judged
from detector.archive.writer import ArchiveWriter


@pytest.fixture
def store(tmp_path: Path, run: Judged) -> Store:
    store = Store(str(tmp_path / "archive"))
    writer = ArchiveWriter(store, reports_max=30)
    for made in run.made[:60]:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


def _rows(store: Store, table: str) -> pa.Table:
    return pa.concat_tables([data for file in store.scan(table).files for data in store.read(file)])


def test_small_files_become_one_with_the_same_rows(store: Store) -> None:
    before = {table: _rows(store, table) for table in ("reports", "snapshots")}
    assert compact(store) == []
    for table, rows in before.items():
        days = {file.day for file in store.scan(table).files}
        assert len(store.scan(table).files) == len(days)
        assert _rows(store, table).to_pylist() == rows.to_pylist()


def test_cut_short_before_the_old_ones_are_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _rows(store, "reports").to_pylist()
    monkeypatch.setattr(store, "remove", lambda _paths: None)
    compact(store)
    assert _rows(store, "reports").to_pylist() == before
    monkeypatch.undo()
    compact(store)
    assert _rows(store, "reports").to_pylist() == before


def test_a_torn_file_stays_and_is_named(store: Store) -> None:
    torn = Path(store.scan("snapshots").files[0].path)
    kept = sum(file.rows for file in store.scan("snapshots").files[1:])
    torn.write_bytes(b"PAR1")
    assert [Path(left.path) for left in compact(store)] == [torn]
    assert torn.exists()
    assert _rows(store, "snapshots").num_rows == kept
