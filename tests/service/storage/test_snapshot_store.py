"""The snapshot store: its content survives a restart, bounds hold, and a failing disk affects nothing else."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.snapshot import Snapshot
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import MemberRecord
from detector.service.metrics import Metrics
from detector.service.storage import snapshot_store as snapshot_store_module
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.storage.sqlite import DamagedError, Database, DirectoryInUseError, Retention
from stilltrue.model import Holds, PartyName, ProcessName, ProcessState, SnapshotId, SnapshotRef, Verdict, Witness
from stilltrue.protocol.wire.verdict import snapshot_to_wire
from stilltrue.v1 import detector_pb2

FILE = "stilltrue.sqlite3"


class Lines(Log):
    """A log that remembers its events."""

    def __init__(self) -> None:
        super().__init__("stilltrue-test")
        self.events: list[tuple[str, dict[str, object]]] = []

    def _note(self, event: str, **values: object) -> None:
        self.events.append((event, values))

    def info(self, event: str, **values: object) -> None:
        self._note(event, **values)

    def warning(self, event: str, **values: object) -> None:
        self._note(event, **values)

    def failure(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        self._note(event, **values)

    def said(self, event: str) -> int:
        return sum(name == event for name, _ in self.events)


PACKED = zlib.compress(b"{}")


def bounds(**values: int) -> Retention:
    return Retention(**{"summaries_max": 100, "documents_max": 100, "documents_pinned_max": 100, "bytes_max": 10**8, **values})


def snapshot_store(directory: Path, log: Lines | None = None, queue_max: int = 1000, **values: int) -> SnapshotStore:
    return SnapshotStore(
        directory=directory, bounds=bounds(**values), queue_max=queue_max, clock=Clock(), metrics=Metrics(), log=log or Lines()
    )


def taken(number: int) -> tuple[Assembled, tuple[Verdict, ...]]:
    ref = SnapshotRef(id=SnapshotId(number), begun=float(number), ended=number + 0.5, members=1)
    snapshot = Snapshot(ref=ref, processes={ProcessName("a"): ProcessState()})
    assembled = Assembled(snapshot=snapshot, outcome=Outcome.COMPLETE, begun_by="ask", reports={})
    witness = Witness(kind="free", parties=(), text="nobody waited")
    return assembled, (Verdict(predicate="deadlock", holds=Holds.FALSE, witness=witness, snapshot=ref),)


def incident(id: str, **values: Any) -> Incident:
    known: dict[str, Any] = {
        "predicate": "deadlock", "scope": "all", "core": (PartyName("a"),), "behind": (), "opened": 1.0, "seen": 1.0,
        "first_snapshot": SnapshotId(1), "last_snapshot": SnapshotId(1), "keys": (("a", 1, 7),),
    }  # fmt: skip
    return Incident(id=id, **known | values)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


async def test_a_restart_loses_no_snapshot_no_incident_and_no_id(tmp_path: Path) -> None:
    first = snapshot_store(tmp_path)
    for number in range(1, 41):
        first.reserve(SnapshotId(number))
        first.finished(*taken(number), pinned=False)
    first.incident(incident("i-open"))
    first.incident(incident("i-done", closed=2.0, ending="it went on"))
    first.close(5)
    second = snapshot_store(tmp_path)
    assert second.first_id > 40
    assert [known.id for known in second.open_incidents] == ["i-open"]
    assert second.open_incidents[0] == incident("i-open")
    assert second.find_incident("i-done") == incident("i-done", closed=2.0, ending="it went on")
    assert [summary.ref.id for summary in await second.summaries(100)] == list(range(40, 0, -1))
    answer = await second.snapshot(7)
    assert answer is not None
    assert '"id":7' in answer.document_json
    assert answer.verdicts[0].predicate == "deadlock"
    newest = await second.snapshot(0)
    assert newest is not None
    assert newest.summary.ref.id == 40
    second.close(5)


async def test_the_newest_can_be_shown_before_it_is_written(tmp_path: Path) -> None:
    one = snapshot_store(tmp_path)
    one.finished(*taken(1), pinned=False)
    answer = await one.snapshot(1)
    assert answer is not None
    assert answer.summary.kept
    assert await one.snapshot(99) is None
    one.close(5)


async def test_ids_rise_across_a_crash(tmp_path: Path) -> None:
    crashed = snapshot_store(tmp_path)
    given = [SnapshotId(crashed.first_id + step) for step in range(600)]
    for number in given:
        crashed.reserve(number)
    until(lambda: Database(tmp_path, bounds()).first_id() > given[-1])
    crashed._lock = None  # as if killed: nothing was closed
    second = Database(tmp_path, bounds())
    assert second.first_id() > given[-1]


def test_a_reservation_never_shrinks(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds())
    store.reserve(100)
    store.reserve(50)
    assert store.first_id() == 100
    store.close()


def test_bounds_hold_and_referenced_snapshots_stay(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds(documents_max=10, documents_pinned_max=5, summaries_max=150))
    for number in range(1, 257):
        assembled, _ = taken(number)
        summary = archived_summary(assembled)
        store.add_snapshot(summary, PACKED, [], pinned=number % 50 == 1)
    assert len(store.summaries(1000)) <= 150 + 64
    kept = [summary.ref.id for summary in store.summaries(1000) if summary.kept]
    assert set(range(247, 257)) <= set(kept)
    assert {201, 251} <= set(kept)
    assert len(kept) <= 10 + 5 + 64
    store.close()


def test_the_oldest_documents_are_removed_when_the_store_is_full(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds(bytes_max=2000))
    for number in range(1, 130):
        store.add_snapshot(archived_summary(taken(number)[0]), PACKED, [], pinned=False)
    kept = [summary.ref.id for summary in store.summaries(1000) if summary.kept]
    assert 129 in kept
    assert 1 not in kept
    store.close()


def test_unreferenced_snapshots_are_removed_first_when_the_store_is_full(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds(bytes_max=1500, summaries_max=1000))
    store.add_snapshot(archived_summary(taken(1)[0]), PACKED, [], pinned=True)
    for number in range(2, 130):
        store.add_snapshot(archived_summary(taken(number)[0]), PACKED, [], pinned=False)
    kept = {summary.ref.id for summary in store.summaries(1000) if summary.kept}
    assert 1 in kept
    assert 2 not in kept
    store.close()


def test_the_snapshots_of_an_incident_are_kept_however_old(tmp_path: Path) -> None:
    one = snapshot_store(tmp_path, documents_max=5, summaries_max=1000)
    for number in (1, 2):
        one.finished(*taken(number), pinned=False)
    until(one._queue.empty)
    one.incident(replace(incident("i-a"), first_snapshot=SnapshotId(1), last_snapshot=SnapshotId(2)))
    until(lambda: not one._unwritten)
    for number in range(3, 140):
        one.finished(*taken(number), pinned=False)
    one.close(10)
    store = Database(tmp_path, bounds())
    kept = {summary.ref.id for summary in store.summaries(1000) if summary.kept}
    assert {1, 2} <= kept
    assert 3 not in kept
    store.close()


def test_damage_is_checked_for_before_the_file_is_used(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds())
    for number in range(1, 300):
        store.add_snapshot(archived_summary(taken(number)[0]), PACKED, [], pinned=False)
    (page,) = store._db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'documents_by_pin'").fetchone()
    (size,) = store._db.execute("PRAGMA page_size").fetchone()
    store.close()
    whole = bytearray((tmp_path / FILE).read_bytes())
    whole[(page - 1) * size : page * size] = b"\xff" * size
    (tmp_path / FILE).write_bytes(whole)
    with pytest.raises(DamagedError):
        Database(tmp_path, bounds())


def test_a_deleted_directory_is_recreated_with_the_state_a_restart_needs(tmp_path: Path) -> None:
    log, folder = Lines(), tmp_path / "data"
    one = snapshot_store(folder, log)
    one.incident(incident("i-open"))
    one.member("a", MemberRecord(instance="a", incarnation=1))
    until(lambda: not one._unwritten and not one._members)
    shutil.rmtree(folder)
    one.finished(*taken(1), pinned=False)
    until(lambda: log.said("store vanished") == 1 and (folder / FILE).exists() and not one._unwritten)
    one.close(5)
    again = snapshot_store(folder)
    assert [known.id for known in again.open_incidents] == ["i-open"]
    assert [record.instance for record in again.members] == ["a"]
    assert again.first_id > 1
    again.close(5)


async def listed(store: SnapshotStore) -> list[int]:
    return [summary.ref.id for summary in await store.summaries(100)]


def is_deleted(folder: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)


def is_torn(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The next write finds a page that is none."""

    def finds(database: Database, *args: Any, **values: Any) -> None:
        patch.undo()
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorname = "SQLITE_CORRUPT"
        raise error

    patch.setattr(Database, "add_snapshot", finds)


@pytest.mark.parametrize("fault", [is_deleted, is_torn])
async def test_snapshots_listed_after_a_new_store_began_would_survive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    folder = tmp_path / "data"
    monkeypatch.setattr("detector.service.storage.snapshot_store._CALM_SECONDS", 0.0)
    one = snapshot_store(folder)
    one.incident(incident("i-open"))
    one.incident(incident("i-closed", closed=2.0, ending="a went on"))
    for number in range(1, 11):
        one.finished(*taken(number), pinned=False)
    assert await listed(one) == list(range(10, 0, -1))
    with pytest.MonkeyPatch.context() as patch:
        fault(folder, patch)
        one.finished(*taken(11), pinned=False)
        until(lambda: one._recent[11].done)
    one.finished(*taken(12), pinned=False)
    until(lambda: one._recent[12].done and not one._failing)
    shown = await listed(one)
    assert set(shown) >= {*range(1, 11), 12}
    incidents = {each.id for each in await one.incidents(10, [], open_only=False)}
    assert incidents == {"i-closed", "i-open"}
    kept = Database(folder, bounds())  # as a process that starts after a kill would find it
    assert [summary.ref.id for summary in kept.summaries(100)] == shown
    assert {each.id for each in kept.incidents(10)} == incidents
    kept.close()
    one.close(5)


def archived_summary(assembled: Assembled) -> Any:
    return detector_pb2.SnapshotSummary(ref=snapshot_to_wire(assembled.snapshot.ref), outcome="complete", kept=True)


async def test_a_failing_disk_is_logged_once_and_incidents_wait_for_it(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the directory should be")
    log = Lines()
    one = snapshot_store(blocked, log)
    assert log.said("store unusable") == 1
    assert one.first_id == 1
    one.finished(*taken(1), pinned=False)
    one.incident(incident("i-kept"))
    until(one._queue.empty)
    assert (await one.snapshot(1)) is not None
    assert log.said("store cannot be used") == 1
    assert "[Errno" not in str(log.events)
    blocked.unlink()
    until(lambda: not one._unwritten)
    one.close(5)
    assert [known.id for known in Database(blocked, bounds()).incidents(10)] == ["i-kept"]


async def test_a_full_disk_fails_writes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.service.storage.snapshot_store._CALM_SECONDS", 0.5)
    log = Lines()
    one = snapshot_store(tmp_path, log)
    assert one._database is not None
    pages = one._database._db.execute("PRAGMA page_count").fetchone()[0]
    one._database._db.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(1, 60):
        one.finished(*taken(number), pinned=False)
        one.incident(incident(f"i-{number}", text="x" * 2000))
    until(lambda: log.said("store cannot be used") == 1)
    assert (await one.snapshot(59)) is not None
    await one.incidents(100, [], open_only=False)
    assert log.said("store works again") == 0
    one._database._db.execute("PRAGMA max_page_count = 100000")

    def again() -> bool:
        one.finished(*taken(60), pinned=False)
        return not one._unwritten and log.said("store works again") == 1

    until(again)
    one.close(5)
    assert len(Database(tmp_path, bounds()).incidents(100)) == 59


async def test_the_newest_snapshots_that_a_full_disk_refused_are_written_once_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.service.storage.snapshot_store._CALM_SECONDS", 0.0)
    add = Database.add_snapshot
    tried: list[int] = []

    def full(database: Database, summary: Any, *args: Any, **values: Any) -> None:
        tried.append(summary.ref.id)
        raise sqlite3.DataError("string or blob too big") if summary.ref.id == 49 else sqlite3.OperationalError("full")

    one = snapshot_store(tmp_path)
    monkeypatch.setattr(Database, "add_snapshot", full)
    for number in range(1, 51):
        one.finished(*taken(number), pinned=False)
    until(lambda: 50 in tried)
    monkeypatch.setattr(Database, "add_snapshot", add)
    until(lambda: not one._failing and not one._lost)
    shown = await listed(one)
    assert shown == [50, *range(48, 17, -1)], "snapshot 49 is one that no disk takes"
    kept = Database(tmp_path, bounds())
    assert [summary.ref.id for summary in kept.summaries(100)] == shown
    kept.close()
    one.close(5)


@pytest.mark.parametrize("garbage", [b"no database at all" * 500, b""])
def test_a_damaged_file_is_set_aside_never_deleted(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / FILE).write_bytes(garbage)
    log = Lines()
    one = snapshot_store(tmp_path, log)
    one.incident(incident("i-new"))
    one.close(5)
    assert [known.id for known in Database(tmp_path, bounds()).incidents(10)] == ["i-new"]
    aside = list(tmp_path.glob(f"{FILE}.damaged-*"))
    if garbage:
        assert [file.read_bytes() for file in aside] == [garbage]
        assert log.said("store damaged") == 1


def test_a_torn_file_is_set_aside(tmp_path: Path) -> None:
    store = Database(tmp_path, bounds())
    for number in range(1, 300):
        store.add_snapshot(archived_summary(taken(number)[0]), PACKED, [], pinned=False)
    store.close()
    whole = (tmp_path / FILE).read_bytes()
    middle = len(whole) // 2
    (tmp_path / FILE).write_bytes(whole[: middle // 2] + b"\xff" * middle + whole[middle + middle // 2 :])
    log = Lines()
    one = snapshot_store(tmp_path, log)
    one.close(5)
    assert log.said("store damaged") == 1
    assert len(list(tmp_path.glob(f"{FILE}.damaged-*"))) == 1


def test_two_detectors_cannot_share_a_directory(tmp_path: Path) -> None:
    one = snapshot_store(tmp_path)
    with pytest.raises(DirectoryInUseError, match="each needs its own --data"):
        snapshot_store(tmp_path)
    one.close(5)
    snapshot_store(tmp_path).close(5)


def test_a_full_queue_drops_documents_and_counts_them(tmp_path: Path) -> None:
    one = snapshot_store(tmp_path, queue_max=2)
    with one._database_guard:
        for number in range(1, 10):
            one.finished(*taken(number), pinned=False)
    one.close(5)
    assert b"stilltrue_archive_dropped_total 0.0" not in one._metrics.text()


def test_the_service_says_when_the_disk_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.service.storage.snapshot_store._CALM_SECONDS", 0.0)
    blocked = tmp_path / "data"
    blocked.write_text("a file where the directory should be")
    log = Lines()
    one = snapshot_store(blocked, log)
    blocked.unlink()
    one.incident(incident("i-1"))
    until(lambda: log.said("store works again") == 1)
    one.close(5)


def test_reading_an_archive_of_another_kind_fails_clearly(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("CREATE TABLE meta (something TEXT)")
    database.close()
    log = Lines()
    snapshot_store(tmp_path, log).close(5)
    assert log.said("store cannot be used") == 1


async def test_an_incident_is_shown_once_it_would_survive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = snapshot_store(tmp_path)
    held, put = threading.Event(), Database.put_incident

    def slow(self: Database, incident: Incident) -> None:
        held.wait(10)
        put(self, incident)

    monkeypatch.setattr(Database, "put_incident", slow)
    store.incident(incident("i"))
    shown = asyncio.create_task(store.incidents(10, [incident("i")], open_only=False))
    done, _ = await asyncio.wait([shown], timeout=0.1)
    assert not done
    held.set()
    assert [each.id for each in await shown] == ["i"]
    with sqlite3.connect(tmp_path / "stilltrue.sqlite3") as there:
        assert there.execute("SELECT count(*) FROM incidents").fetchone() == (1,)
    await asyncio.to_thread(store.close, 10)


async def test_a_snapshot_is_listed_once_it_would_survive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = snapshot_store(tmp_path)
    held, add = threading.Event(), Database.add_snapshot

    def slow(self: Database, *arguments: Any, **options: Any) -> None:
        held.wait(10)
        add(self, *arguments, **options)

    monkeypatch.setattr(Database, "add_snapshot", slow)
    store.finished(*taken(1), pinned=False)
    shown = asyncio.create_task(store.summaries(10))
    done, _ = await asyncio.wait([shown], timeout=0.1)
    assert not done
    held.set()
    assert [summary.ref.id for summary in await shown] == [1]
    with sqlite3.connect(tmp_path / "stilltrue.sqlite3") as there:
        assert there.execute("SELECT id FROM snapshots").fetchall() == [(1,)]
    await asyncio.to_thread(store.close, 10)


async def test_a_list_includes_the_snapshot_being_evaluated(tmp_path: Path) -> None:
    store = snapshot_store(tmp_path)
    store.taken(taken(1)[0])
    shown = asyncio.create_task(store.summaries(10))
    done, _ = await asyncio.wait([shown], timeout=0.1)
    assert not done
    store.taken(taken(2)[0])  # it ended after the list was asked for
    store.finished(*taken(1), pinned=False)
    assert [summary.ref.id for summary in await shown] == [1]
    await asyncio.to_thread(store.close, 10)


async def test_the_newest_snapshot_is_shown_with_its_verdicts(tmp_path: Path) -> None:
    store = snapshot_store(tmp_path)
    store.taken(taken(1)[0])
    shown = asyncio.create_task(store.evaluated_snapshot(0))
    done, _ = await asyncio.wait([shown], timeout=0.1)
    assert not done
    store.taken(taken(2)[0])  # it ended after the first was asked for
    store.finished(*taken(1), pinned=False)
    answer = await shown
    assert answer is not None
    assert (answer.summary.ref.id, [verdict.predicate for verdict in answer.verdicts]) == (1, ["deadlock"])
    await asyncio.to_thread(store.close, 10)


async def test_a_list_does_not_wait_for_ever_for_an_unfinished_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_store_module, "WRITTEN_SECONDS_MAX", 0.2)
    store = snapshot_store(tmp_path)
    store.finished(*taken(1), pinned=False)
    store.taken(taken(2)[0])
    async with asyncio.timeout(10):
        assert [summary.ref.id for summary in await store.summaries(10)] == [1]
    await asyncio.to_thread(store.close, 10)


async def test_one_incident_and_its_snapshots_are_found_without_reading_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = snapshot_store(tmp_path)
    for number in range(1, 9):
        first.finished(*taken(number), pinned=False)
    old = incident("i-old", opened=1.0, closed=2.0, last_snapshot=SnapshotId(3))
    newer = [incident(f"i-{at}", opened=100.0 + at, closed=200.0 + at) for at in range(20)]
    for one in (old, *newer):
        first.incident(one)
    first.close(5)
    second = snapshot_store(tmp_path)
    assert [one.id for one in await second.incidents(100, [], open_only=False, opened_min=119.0)] == ["i-19"]
    second._closed.clear()  # as if more had ended since than are remembered
    monkeypatch.setattr(Database, "incidents", lambda *_, **__: pytest.fail("every incident is read"))
    assert await second.known_incident("i-old", []) == old
    assert await second.known_incident("i-none", []) is None
    assert await second.known_incident("i-now", [incident("i-now")]) == incident("i-now")
    assert await second.kept_between(2, 5) == [2, 3, 4, 5]
    second.finished(*taken(9), pinned=False)
    assert await second.kept_between(8, 10) == [8, 9], "also the one that is being written"
    await asyncio.to_thread(second.close, 5)
