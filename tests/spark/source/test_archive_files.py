"""An archive's files come in the order of their days and names, each once, and an idle stream looks seldom."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow.fs import FileInfo
from pyspark.sql.streaming.datasource import ReadAllAvailable

from detector.archive.files import ArchiveFiles
from detector.spark.source import archive_files
from detector.spark.source.archive_files import FileLog, Lister, Part, _Reader

EIGHT_DAYS_SECONDS = 8 * 86_400


@pytest.fixture
def store(tmp_path: Path) -> ArchiveFiles:
    """Three days of three files of each table."""
    store = ArchiveFiles(str(tmp_path / "archive"))
    for day in range(1, 4):
        for first in range(3):
            for table in ("reports", "snapshots"):
                store.write(table, f"2026-11-0{day}", pa.table({"snapshot": [10 * day + first]}))
    return store


def _reader(store: ArchiveFiles, tmp_path: Path, bytes_max: int = 2**30) -> _Reader:
    options = {"location": store.location, "log": str(tmp_path / "log"), "tasks": "2", "bytes_per_batch_max": str(bytes_max)}
    return _Reader(options)


def _files(reader: _Reader, start: int, end: int) -> list[str]:
    parts = reader.partitions({"batch": start}, {"batch": end})
    files = [[path for _, path in part.files] for part in parts if isinstance(part, Part)]
    return sorted((path for some in files for path in some), key=lambda path: path)


def _names(paths: list[str]) -> list[int]:
    return [int(Path(path).name.split("-")[0]) for path in paths]


def test_in_the_order_of_names_whatever_the_files_times_say(store: ArchiveFiles, tmp_path: Path) -> None:
    random = Random(1)
    for path in Path(store.root).rglob("*.parquet"):
        old = path.stat().st_mtime - random.random() * 2 * EIGHT_DAYS_SECONDS
        os.utime(path, (old, old))
    reader, offset, batches = _reader(store, tmp_path, bytes_max=1), 0, []
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset({"batch": offset}, ReadAllAvailable())["batch"]) != offset:
        batches.append(_files(reader, offset, end))
        offset = end
    assert [len(batch) for batch in batches] == [1] * 18
    numbers = [10 * day + at for day in (1, 2, 3) for at in range(3)]
    assert _names([path for batch in batches for path in batch]) == [number for number in numbers for _ in range(2)]
    assert ["snapshots" in batch[0] for batch in batches] == [True, False] * 9


def test_a_batch_that_is_run_again_gets_the_same_files(store: ArchiveFiles, tmp_path: Path) -> None:
    before = _reader(store, tmp_path)
    assert before.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    files = _files(before, 0, 1)
    assert len(files) == 18
    store.write("reports", "2026-11-01", pa.table({"snapshot": [99]}))  # late, and of an old day
    after = _reader(store, tmp_path)
    assert after.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    assert _files(after, 0, 1) == files
    assert after.latestOffset({"batch": 1}, ReadAllAvailable()) == {"batch": 2}
    assert _names(_files(after, 1, 2)) == [99]


def test_a_file_that_was_being_copied_is_read_again(store: ArchiveFiles, tmp_path: Path) -> None:
    path = next(Path(store.root).rglob("*.parquet"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = _reader(store, tmp_path)
    reader.latestOffset({"batch": 0}, ReadAllAvailable())
    path.write_bytes(whole)
    again = _reader(store, tmp_path)
    assert again.latestOffset({"batch": 1}, ReadAllAvailable()) == {"batch": 2}
    assert _files(again, 1, 2) == [str(path)]


def test_an_idle_stream_looks_at_new_days_seldom_and_at_all_more_seldom(
    store: ArchiveFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    entries = ArchiveFiles.entries

    def counted(self: ArchiveFiles, table: str, day: str) -> Iterator[FileInfo]:
        looked.append(day)
        return entries(self, table, day)

    monkeypatch.setattr(ArchiveFiles, "entries", counted)
    log = FileLog(tmp_path / "log")
    lister = Lister(store, log)
    log.add(1, {each.path: each.bytes for each in lister.new(0.0)})
    looked.clear()
    for second in range(1, 60):
        assert lister.new(float(second)) == []
    assert 0 < len(looked) <= 40
    assert "2026-11-01" not in looked
    shutil.copy(log_path := next(Path(store.root).rglob("day=2026-11-01/*.parquet")), log_path.with_name("copy.parquet"))
    assert [Path(each.path).name for second in range(60, 80) for each in lister.new(float(second))][:1] == ["copy.parquet"]


def test_many_batches_become_one_entry_without_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "ENTRIES_MAX", 3)
    log = FileLog(tmp_path)
    for batch in range(1, 6):
        log.add(batch, {f"x{batch}": batch})
    log.forget(4, {"x2", "x4", "x5"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000005.json", "seen.json"]
    assert dict(FileLog(tmp_path).sizes()) == {"x2": 2, "x4": 4, "x5": 5}
