"""The archive sink: finished snapshots reach the archive; failures cost rows and nothing else."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detector.archive.files import ArchiveFiles
from detector.archive.journal import Journal
from detector.archive.rows.row_decoder import snapshot_of
from detector.archive.writer import ArchiveWriter
from detector.ops.logs import LineFormatter, Log
from detector.service.detection.incident.incidents import Incident
from detector.service.metrics import Metrics
from detector.service.storage import archive_sink as archive_sink_module
from detector.service.storage.archive_sink import FOLDER, ArchiveSink
from stilltrue.model import PartyName, SnapshotId
from tests.synthetic.random_snapshots import Judged

INCIDENT = Incident(
    id="i-1",
    predicate="deadlock",
    scope="all",
    core=(PartyName("a/x"),),
    behind=(),
    opened=1.0,
    seen=2.0,
    first_snapshot=SnapshotId(1),
    last_snapshot=SnapshotId(1),
)


def _archive_sink(directory: Path, bytes_max: int = 2**30) -> ArchiveSink:
    return ArchiveSink(directory=directory, bytes_max=bytes_max, metrics=Metrics(), log=Log("stilltrue"))


def test_finished_snapshots_and_incidents_reach_the_archive(tmp_path: Path, run: Judged) -> None:
    archive_sink = _archive_sink(tmp_path)
    archive_sink.incident(INCIDENT)
    for made in run.made[:5]:
        archive_sink.finished(made.assembled, run.verdicts[:2], made.members)
    archive_sink.close(30)
    store = ArchiveFiles(str(tmp_path / FOLDER))
    rows = [row for file in store.scan("snapshots").files for data in store.read(file) for row in data.to_pylist()]
    assert [snapshot_of(row).ref for row in rows] == [made.assembled.snapshot.ref for made in run.made[:5]]
    incidents = [row for file in store.scan("incidents").files for data in store.read(file) for row in data.to_pylist()]
    assert [(row["id"], row["core"]) for row in incidents] == [("i-1", ["a/x"])]


def test_a_failing_disk_costs_rows_and_logs_one_line(tmp_path: Path, run: Judged, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("not a folder")
    archive_sink = _archive_sink(tmp_path)
    with caplog.at_level(logging.INFO, "stilltrue"):
        for number in range(6):  # a day apart: each is written by itself
            made = run.made[number].assembled
            ref = replace(made.snapshot.ref, begun=86400.0 * number)
            archive_sink.finished(replace(made, snapshot=replace(made.snapshot, ref=ref)), (), {})
        archive_sink.close(30)
    (failed,) = [record for record in caplog.records if record.message == "archive not written"]
    assert failed.exc_info is None, "a disk says itself what is wrong"
    assert "Not a directory" in LineFormatter(as_json=False).format(failed)


def test_an_unreadable_disk_at_start_is_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").write_text("not a folder")
    with caplog.at_level(logging.INFO, "stilltrue"):
        _archive_sink(tmp_path / "data").close(30)
    assert [record.message for record in caplog.records if record.exc_info is None] == [
        "archive without its id", "journal not recovered",
    ]  # fmt: skip


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_rows_that_a_full_disk_refused_are_written_once_it_has_space(
    tmp_path: Path, run: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a killed detector, and those that the running one had accepted."""
    write, full, refused = ArchiveFiles.write, threading.Event(), list[str]()

    def write_if_space(store: ArchiveFiles, table: str, *args: Any, **values: Any) -> str:
        if full.is_set():
            refused.append(table)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(store, table, *args, **values)

    def finished(number: int) -> None:  # a day after the one before, which is then due
        made = run.made[number].assembled
        ref = replace(made.snapshot.ref, begun=86400.0 * number)
        archive_sink.finished(replace(made, snapshot=replace(made.snapshot, ref=ref)), (), {})

    store = ArchiveFiles(str(tmp_path / FOLDER))
    monkeypatch.setattr(ArchiveFiles, "write", write_if_space)
    monkeypatch.setattr(archive_sink_module, "RECOVERY_SECONDS_MIN", 0.0)
    ArchiveWriter(store, journal=Journal(tmp_path)).add(run.made[0].assembled)  # and it is killed
    full.set()
    archive_sink = _archive_sink(tmp_path)
    until(lambda: refused)
    full.clear()
    finished(1)
    finished(2)
    until(lambda: len(store.scan("snapshots").files) == 2)
    refused.clear()
    full.set()
    finished(3)
    until(lambda: refused)
    full.clear()
    finished(4)
    archive_sink.close(30)
    rows = [row for file in store.scan("snapshots").files for data in store.read(file) for row in data.to_pylist()]
    assert sorted(row["snapshot"] for row in rows) == [run.made[number].assembled.snapshot.ref.id for number in (0, 1, 2, 4)]


def test_no_archive_writes_nothing(tmp_path: Path, run: Judged) -> None:
    archive_sink = _archive_sink(tmp_path, bytes_max=0)
    archive_sink.finished(run.made[0].assembled, (), {})
    archive_sink.close(1)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_files_are_removed_first(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(str(tmp_path))
    paths = [store.write("snapshots", day, run.snapshots.slice(0, 5)) for day in ("2026-11-18", "2026-11-19", "2026-11-20")]
    size = Path(paths[0]).stat().st_size
    assert store.prune(3 * size + 100) == []
    assert store.prune(2 * size + 100) == paths[:1]
    assert [file.day for file in store.scan("snapshots").files] == ["2026-11-19", "2026-11-20"]
