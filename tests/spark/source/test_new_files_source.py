"""An archive's files come in order of day and name, each once, and an idle stream lists rarely."""

from __future__ import annotations

import json
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
from detector.spark.source.new_files_source import FileLog, Lister, Part, _Reader
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Progress

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
    options = {
        "location": store.location,
        "out": str(tmp_path),
        "state": "",
        "tasks": "2",
        "bytes_per_batch_max": str(bytes_max),
    }
    return _Reader(options)


def _files(reader: _Reader, start: int, end: int) -> list[str]:
    parts = reader.partitions({"batch": start}, {"batch": end})
    files = [[path for _, path, _ in part.files] for part in parts if isinstance(part, Part)]
    return sorted((path for some in files for path in some), key=lambda path: path)


def _committed(tmp_path: Path, files: dict[str, int]) -> None:
    """As a stream leaves it that has read ``files``."""
    folder = StreamPlan(out=str(tmp_path)).folder
    folder.state.write("read-0.json", json.dumps(files).encode())
    folder.commit(Progress(batch=0, logs=("read-0.json",)), folder.begin())


def _names(paths: list[str]) -> list[int]:
    return [int(Path(path).name.split("-")[0]) for path in paths]


def test_files_come_in_the_order_of_names_whatever_their_times(store: ArchiveFiles, tmp_path: Path) -> None:
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


def test_a_restarted_stream_reads_what_was_not_committed(store: ArchiveFiles, tmp_path: Path) -> None:
    before = _reader(store, tmp_path)
    assert before.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    files = _files(before, 0, 1)
    assert len(files) == 18
    again = _reader(store, tmp_path)
    assert again.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    assert _files(again, 0, 1) == files
    _committed(tmp_path, {path: Path(path).stat().st_size for path in files})
    store.write("reports", "2026-11-01", pa.table({"snapshot": [99]}))  # late, and of an old day
    after = _reader(store, tmp_path)
    assert after.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    assert _names(_files(after, 0, 1)) == [99]


def test_a_file_that_was_being_copied_is_read_again(store: ArchiveFiles, tmp_path: Path) -> None:
    path = next(Path(store.root).rglob("*.parquet"))
    sizes = {str(each): each.stat().st_size for each in Path(store.root).rglob("*.parquet")}
    _committed(tmp_path, sizes | {str(path): sizes[str(path)] - 10})
    reader = _reader(store, tmp_path)
    assert reader.latestOffset({"batch": 0}, ReadAllAvailable()) == {"batch": 1}
    assert _files(reader, 0, 1) == [str(path)]


def test_an_idle_stream_lists_new_days_rarely_and_all_days_more_rarely(
    store: ArchiveFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    entries = ArchiveFiles.entries

    def counted(self: ArchiveFiles, table: str, day: str) -> Iterator[FileInfo]:
        looked.append(day)
        return entries(self, table, day)

    monkeypatch.setattr(ArchiveFiles, "entries", counted)
    log = FileLog({})
    lister = Lister(store, log)
    log.add(1, {each.path: each.bytes for each in lister.new(0.0)})
    looked.clear()
    for second in range(1, 60):
        assert lister.new(float(second)) == []
    assert 0 < len(looked) <= 40
    assert "2026-11-01" not in looked
    shutil.copy(log_path := next(Path(store.root).rglob("day=2026-11-01/*.parquet")), log_path.with_name("copy.parquet"))
    assert [Path(each.path).name for second in range(60, 80) for each in lister.new(float(second))][:1] == ["copy.parquet"]


def test_removed_files_are_forgotten() -> None:
    log = FileLog({"x0": 0})
    for batch in range(1, 6):
        log.add(batch, {f"x{batch}": batch})
    log.forget(4, {"x2", "x5"})
    assert dict(log.sizes()) == {"x2": 2, "x5": 5}
    assert (4 in log, log.files(5)) == (False, [("x5", 5)])
