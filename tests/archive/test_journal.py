"""A killed process neither loses nor duplicates a snapshot that its journal has accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from detector.archive.files import ArchiveFiles
from detector.archive.journal import FILE, Journal
from detector.archive.writer import ArchiveWriter
from tests.synthetic.random_snapshots import Judged


def writer_of(folder: Path) -> ArchiveWriter:
    return ArchiveWriter(ArchiveFiles(str(folder / "archive")), journal=Journal(folder), seconds_max=1e9)


def kept(folder: Path, table: str = "snapshots") -> list[int]:
    store = ArchiveFiles(str(folder / "archive"))
    numbers: list[int] = []
    for file in store.scan(table).files:
        with store.filesystem.open_input_file(file.path) as opened:
            numbers += pq.read_table(opened, columns=["snapshot"]).column("snapshot").to_pylist()
    return sorted(numbers)


def gathered(folder: Path, run: Judged, count: int) -> ArchiveWriter:
    writer = writer_of(folder)
    for made in run.made[:count]:
        writer.add(made.assembled, (), (), made.members)
    return writer


def test_rows_gathered_by_a_killed_writer_are_written_by_the_next(run: Judged, tmp_path: Path) -> None:
    gathered(tmp_path, run, 3)  # and is never flushed
    assert kept(tmp_path) == []
    assert writer_of(tmp_path).recover() == 3
    wanted = [made.assembled.snapshot.ref.id for made in run.made[:3]]
    assert kept(tmp_path) == wanted
    assert not (tmp_path / FILE).exists()
    assert writer_of(tmp_path).recover() == 0
    assert kept(tmp_path) == wanted


def test_rows_already_in_files_are_not_duplicated(run: Judged, tmp_path: Path) -> None:
    writer = gathered(tmp_path, run, 3)
    journal = (tmp_path / FILE).read_bytes()
    writer.flush()
    rows = {table: kept(tmp_path, table) for table in ("reports", "snapshots")}
    (tmp_path / FILE).write_bytes(journal)  # killed between the two steps
    assert writer_of(tmp_path).recover() == 0
    assert {table: kept(tmp_path, table) for table in rows} == rows


@pytest.mark.parametrize("cut", [1, 20, 700])
def test_a_torn_end_costs_only_the_torn_snapshot(run: Judged, tmp_path: Path, cut: int) -> None:
    gathered(tmp_path, run, 2)
    whole = (tmp_path / FILE).stat().st_size
    writer_of(tmp_path).add(run.made[2].assembled, (), (), run.made[2].members)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: max(whole, len(content) - cut)])
    assert writer_of(tmp_path).recover() == 2
    assert kept(tmp_path) == [made.assembled.snapshot.ref.id for made in run.made[:2]]


@pytest.mark.parametrize("content", [b"", b"stj1", b"\xff" * 1000, b"stj1\x00" + b"\xff" * 40])
def test_an_invalid_journal_is_read_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert list(Journal(tmp_path).read()) == []


def test_a_partly_written_snapshot_is_dropped_from_the_journal(
    run: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered(tmp_path, run, 1)
    whole = (tmp_path / FILE).read_bytes()

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, content: bytes) -> int:
            return int(self.file.write(content[:9]))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: Full(opened(self, *a, **k)))
    made = run.made[1]
    with pytest.raises(OSError, match="No space left"):
        writer_of(tmp_path).add(made.assembled, (), (), made.members)
    monkeypatch.undo()
    assert (tmp_path / FILE).read_bytes() == whole
