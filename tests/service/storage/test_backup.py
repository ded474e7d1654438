"""State is backed up while in use, restored to an empty directory, and bounded."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import zlib
from pathlib import Path
from typing import Any

import pytest

from detector.service.storage.backup import MANIFEST, BackupError, back_up, restore
from detector.service.storage.sqlite import Database, DirectoryInUseError, NewerStateError, Retention, set_aside
from stilltrue.v1 import detector_pb2, snapshot_pb2
from tests.service.storage.test_snapshot_store import incident

BOUNDS: dict[str, Any] = {"summaries_max": 1000, "documents_max": 1000, "documents_pinned_max": 1000, "bytes_max": 2**30}


async def test_a_backup_of_a_running_detector_restores_its_incidents_and_snapshots(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path / "data") as detector:
        await detector.join(a, b)
        asked = await detector.ask()
        (open_one,) = (await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest())).incidents
        await asyncio.to_thread(back_up, tmp_path / "data", tmp_path / "copy")
        with pytest.raises(DirectoryInUseError):
            restore(tmp_path / "copy", tmp_path / "data")
    restore(tmp_path / "copy", tmp_path / "again")
    async with start_detector(tmp_path / "again") as detector:
        (kept,) = (await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest(open_only=True))).incidents
        assert kept.id == open_one.id
        await detector.join(a, b)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_TRUE
        assert verdict.snapshot.id > asked.snapshot.id
        assert [one.id for one in (await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest())).incidents] == [
            kept.id
        ]


def test_an_incomplete_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="contains no detector state; --data names"):
        back_up(tmp_path / "data", tmp_path / "copy")
    Database(tmp_path / "data", Retention(**BOUNDS)).close()
    back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(BackupError, match="not empty; choose an empty or a new directory"):
        back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(BackupError, match="already holds state"):
        restore(tmp_path / "copy", tmp_path / "data")
    manifest = tmp_path / "copy" / MANIFEST
    manifest.write_text(json.dumps({"schema": 999}))
    with pytest.raises(NewerStateError, match="made by a later version"):
        restore(tmp_path / "copy", tmp_path / "again")
    manifest.unlink()
    with pytest.raises(BackupError, match="not a complete backup"):
        restore(tmp_path / "copy", tmp_path / "again")


def test_a_backup_that_fails_names_both_ends_and_leaves_nothing(tmp_path: Path) -> None:
    Database(tmp_path / "data", Retention(**BOUNDS)).close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # as on a full disk
    try:
        with pytest.raises(BackupError, match=r"cannot copy .*data.* to .*copy"):
            back_up(tmp_path / "data", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "copy").iterdir()) == []
    assert back_up(tmp_path / "data", tmp_path / "copy") == 1


def add(store: Database, number: int, ended: float) -> None:
    summary = detector_pb2.SnapshotSummary(ref=snapshot_pb2.SnapshotRef(id=number, ended=ended), outcome="complete")
    store.add_snapshot(summary, zlib.compress(b"{}"), [], pinned=True)


def test_old_snapshots_are_removed_and_open_incidents_kept(tmp_path: Path) -> None:
    store = Database(tmp_path, Retention(**BOUNDS, age_seconds_max=100))
    add(store, 1, 10.0)
    store.put_incident(incident("closed long ago", opened=1.0, closed=10.0))
    store.put_incident(incident("closed just now", opened=2.0, closed=995.0))
    store.put_incident(incident("open", opened=3.0))
    for number in range(2, 67):
        add(store, number, 1000.0)
    assert 1 not in [summary.ref.id for summary in store.summaries(1000)]
    assert {each.id for each in store.incidents(10)} == {"open", "closed just now"}
    store.close()


def test_closed_incidents_are_bounded(tmp_path: Path) -> None:
    store = Database(tmp_path, Retention(**BOUNDS, incidents_max=10))
    for number in range(1, 66):
        store.put_incident(incident(f"i{number}", opened=float(number), closed=float(number)))
        store.put_incident(incident(f"open {number}", opened=float(number)))
        add(store, number, 1000.0)
    closed = [each for each in store.incidents(1000) if not each.open]
    assert len(closed) == 10
    assert len(store.incidents(1000, open_only=True)) == 65
    store.close()


def test_stores_set_aside_are_bounded_in_number_and_age(tmp_path: Path) -> None:
    for number in range(4):
        Database(tmp_path, Retention(**BOUNDS)).close()
        set_aside(tmp_path, 1_800_000_000.0 + number)
    kept = sorted(tmp_path.glob("*.damaged-*"))
    os.utime(kept[-1], (5.0, 5.0))
    add(Database(tmp_path, Retention(**BOUNDS, damaged_max=2, age_seconds_max=1e9)), 1, 1.8e9)
    assert sorted(tmp_path.glob("*.damaged-*")) == kept[2:3]
