"""Snapshots are gathered into files by size, time and day; a failing disk costs those rows and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.archive.files import ArchiveFiles
from detector.archive.writer import ArchiveWriter
from tests.synthetic.random_snapshots import Judged


def _files(store: ArchiveFiles) -> list[int]:
    return [file.rows for file in store.scan("snapshots").files]


def test_a_file_is_written_when_it_is_full(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(str(tmp_path))
    writer = ArchiveWriter(store, reports_max=10, seconds_max=1e9)
    for made in run.made[:6]:
        writer.add(made.assembled, members=made.members)
    assert _files(store)
    assert sum(_files(store)) + writer.gathered == 6


def test_a_file_is_written_when_it_spans_its_time(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(str(tmp_path))
    writer = ArchiveWriter(store, seconds_max=120)
    for made in run.made[:5]:  # a minute apart
        writer.add(made.assembled, members=made.members)
    assert _files(store) == [2, 2]


def test_verdicts_and_incidents_are_written_too(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(str(tmp_path))
    writer = ArchiveWriter(store)
    incident = {"id": "i1", "predicate": "deadlock", "scope": "all", "core": ["a", "b"], "opened": 1.0}
    writer.add(run.made[0].assembled, run.verdicts[: len(run.predicates)], [incident], run.made[0].members)
    writer.flush()
    (file,) = store.scan("incidents").files
    (data,) = store.read(file)
    assert data.to_pylist()[0]["snapshot"] == 1
    assert [file.rows for file in store.scan("verdicts").files] == [len(run.predicates)]


def test_snapshots_after_a_full_disk_are_written(tmp_path: Path, run: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArchiveFiles(str(tmp_path))
    writer = ArchiveWriter(store)
    writer.add(run.made[0].assembled)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", lambda *_args, **_more: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            writer.flush()
    writer.add(run.made[1].assembled)
    writer.flush()
    assert _files(store) == [1]
