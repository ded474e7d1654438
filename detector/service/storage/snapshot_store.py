"""The snapshot store: writes snapshots and incidents to disk on a separate thread, and goes on while the disk fails.

The newest data is in memory, so it can be shown at once, even while nothing can be written. Incidents are never dropped: they
are written as soon as the disk works again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from detector.core.protocol.assembler import Assembled
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import MemberRecord
from detector.service.metrics import Metrics
from detector.service.storage.packed_documents import PackedDocuments
from detector.service.storage.sqlite import (
    DamagedError,
    Database,
    DirectoryInUseError,
    Retention,
    lock_directory,
    locks,
    set_aside,
)
from detector.service.storage.stored_snapshot import StoredSnapshot
from stilltrue.model import SnapshotId, Verdict
from stilltrue.v1 import detector_pb2 as pb

T = TypeVar("T")

_IDS_AT_ONCE = 1000
_RECENT_MAX = 32
_CLOSED_MAX = 10_000
_RETRY_SECONDS = 1.0
WRITTEN_SECONDS_MAX = 2.0
"""How long a list waits until its entries are on disk, and for the verdicts of a snapshot that has just ended."""
_VERDICTS_POLL_SECONDS = 0.02
_CALM_SECONDS = 3.0


class _Signal(Enum):
    WAKE = "write pending incidents, members and reservations"
    STOP = "write the queue out, then stop"


class SnapshotStore:
    """Stores snapshots and incidents for the event loop, and finds them again."""

    def __init__(self, *, directory: Path, bounds: Retention, queue_max: int, clock: Clock, metrics: Metrics, log: Log) -> None:
        """Open the store. Raises ``DirectoryInUseError``; a failing disk is only logged."""
        self._directory = directory
        self._bounds = bounds
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._failing = False
        self._failed_at = 0.0
        self._lock: int | None = None
        self._database: Database | None = None
        self._recent: OrderedDict[int, StoredSnapshot] = OrderedDict()
        self._taken: OrderedDict[int, StoredSnapshot] = OrderedDict()
        self._verdicts_due: dict[int, float] = {}  # when to stop waiting for the verdicts of a snapshot in _taken
        self._closed: OrderedDict[str, Incident] = OrderedDict()
        self._unwritten: OrderedDict[str, Incident] = OrderedDict()
        self._members: dict[str, MemberRecord | None] = {}
        self._lost: dict[int, StoredSnapshot] = {}  # not on disk; written once the disk works again
        self._current: tuple[dict[str, MemberRecord], dict[str, Incident]] = ({}, {})
        self._guard = threading.Lock()  # guards the fields above, except _taken
        self._written = threading.Condition(self._guard)
        self._database_guard = threading.Lock()  # guards _database
        self._queue: queue.Queue[StoredSnapshot | _Signal] = queue.Queue(queue_max)
        self._stopped = threading.Event()
        self._documents = PackedDocuments()
        self.first_id = SnapshotId(1)
        self._reserved = self._wanted_below = 0
        self.open_incidents: tuple[Incident, ...] = ()
        self.members: tuple[MemberRecord, ...] = ()
        self._start()
        self._thread = threading.Thread(target=self._write_all, name="stilltrue-store", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        """Load the state of the last run, even if the disk can only be read."""
        with contextlib.suppress(OSError):
            self._lock = lock_directory(self._directory)
        if self._attempt(self._load) is None and not self._load_unwritable():
            self._log.warning("store unusable", directory=self._directory, consequence="nothing is kept across a restart")
        self._wanted_below = self.first_id + _IDS_AT_ONCE
        self._attempt(self._write_urgent, writes=True)

    def _load_unwritable(self) -> bool:
        try:
            database = Database(self._directory, self._bounds, writable=False)
            try:
                return self._load(database)
            finally:
                database.close()
        except (sqlite3.Error, OSError, DamagedError):
            return False

    def _load(self, database: Database) -> bool:
        self.first_id = SnapshotId(database.first_id())
        self.members = tuple(database.members())
        self._current[0].update((record.instance, record) for record in self.members)
        everything = database.incidents(_CLOSED_MAX)
        now = self._clock.now()
        self.open_incidents = tuple(  # seen before now, even if the wall clock was set back
            replace(each, seen=min(each.seen, now)) for each in database.incidents(_CLOSED_MAX, open_only=True)
        )
        self._current[1].update((incident.id, incident) for incident in self.open_incidents)
        self._closed.update((incident.id, incident) for incident in reversed(everything) if not incident.open)
        return True

    # -- storing (event loop) ------------------------------------------------------------------------------------------

    def reserve(self, id: SnapshotId) -> None:
        """Reserve ids from ``id`` on, so that they are never assigned again, even after a crash."""
        if id + _IDS_AT_ONCE // 2 >= self._wanted_below:
            self._wanted_below = id + _IDS_AT_ONCE
            self._wake()

    def taken(self, assembled: Assembled) -> None:
        """Make a snapshot available whose verdicts are still to come."""
        taken = StoredSnapshot(assembled, (), pinned=False, documents=self._documents)
        taken.done = True  # not to be written: the finished snapshot replaces it
        self._taken[taken.summary.ref.id] = taken
        self._verdicts_due[taken.summary.ref.id] = time.monotonic() + WRITTEN_SECONDS_MAX
        while len(self._taken) > _RECENT_MAX:
            number, _ = self._taken.popitem(last=False)
            del self._verdicts_due[number]

    def finished(self, assembled: Assembled, verdicts: tuple[Verdict, ...], *, pinned: bool) -> None:
        """Store a snapshot with its verdicts; ``pinned``: an incident or a changed verdict refers to it."""
        finished = StoredSnapshot(assembled, verdicts, pinned=pinned, documents=self._documents)
        self._remember(finished)
        self._taken.pop(finished.summary.ref.id, None)
        self._verdicts_due.pop(finished.summary.ref.id, None)
        try:
            self._queue.put_nowait(finished)
        except queue.Full:
            finished.done = True
            self._metrics.storage_dropped()

    def _remember(self, finished: StoredSnapshot) -> None:
        with self._guard:
            self._recent[finished.summary.ref.id] = finished
            while len(self._recent) > _RECENT_MAX:
                self._recent.popitem(last=False)

    def incident(self, incident: Incident) -> None:
        """Store a changed incident."""
        with self._guard:
            self._unwritten[incident.id] = incident
            _, open_ones = self._current
            if incident.open:
                self._closed.pop(incident.id, None)
                open_ones[incident.id] = incident
            else:
                open_ones.pop(incident.id, None)
                self._closed[incident.id] = incident
                while len(self._closed) > _CLOSED_MAX:
                    self._closed.popitem(last=False)
        self._wake()

    def member(self, name: str, record: MemberRecord | None) -> None:
        """Store a member; None: it has left."""
        with self._guard:
            self._members[name] = record
            members, _ = self._current
            if record is None:
                members.pop(name, None)
            else:
                members[name] = record
        self._wake()

    def find_incident(self, id: str) -> Incident | None:
        """Find a closed incident in memory."""
        return self._closed.get(id)

    def _wake(self) -> None:
        if self._queue.empty():
            try:
                self._queue.put_nowait(_Signal.WAKE)
            except queue.Full:
                return

    # -- answering (event loop) ----------------------------------------------------------------------------------------

    async def summaries(self, limit: int) -> list[pb.SnapshotSummary]:
        """The newest first. While the disk works, every listed snapshot would survive a kill.

        A question is answered before the rest of its snapshot is evaluated. Hence this waits for snapshots in evaluation, so
        that a list requested after an answer includes its snapshot.
        """
        await self._wait_for_verdicts(*self._verdicts_due)
        newest = list(reversed(self._recent.values()))
        if not self._failing and not all(finished.done for finished in newest):
            await asyncio.to_thread(self._wait_for, lambda: all(finished.done for finished in newest))
        older: list[pb.SnapshotSummary] = []
        if limit > sum(finished.on_disk or self._failing for finished in newest):
            read = await asyncio.to_thread(self._attempt, lambda database: database.summaries(limit))
            older = read or []
        recent = [finished.summary for finished in newest if finished.on_disk or self._failing]  # a read may have failed
        found = {summary.ref.id: summary for summary in (*older, *recent)}
        return sorted(found.values(), key=lambda summary: -summary.ref.id)[:limit]

    async def _wait_for_verdicts(self, *ended: int) -> None:
        """Wait until these snapshots, which have ended, have their verdicts, or for too long."""
        while any(self._verdicts_due.get(number, 0.0) > time.monotonic() for number in ended):
            await asyncio.sleep(_VERDICTS_POLL_SECONDS)

    async def evaluated_snapshot(self, id: int) -> pb.GetSnapshotResponse | None:
        """The same as :meth:`snapshot`, once it has its verdicts."""
        wanted = id or max((*self._recent, *self._taken), default=0)
        await self._wait_for_verdicts(wanted)
        return await self.snapshot(wanted)

    async def snapshot(self, id: int) -> pb.GetSnapshotResponse | None:
        """A snapshot that is kept in full; ``id`` 0: the newest."""
        wanted = id or max((*self._recent, *self._taken), default=0)
        recent = self._recent.get(wanted) or self._taken.get(wanted)
        if recent is not None:
            return await asyncio.to_thread(recent.answer)
        return await asyncio.to_thread(self._attempt, lambda database: database.snapshot(wanted))

    async def incidents(
        self, limit: int, open_ones: list[Incident], *, open_only: bool, opened_min: float = 0.0
    ) -> list[Incident]:
        """The newest first. While the disk works, every listed incident would survive a kill.

        ``open_ones``: the open incidents as they are now; ``opened_min``: only incidents opened then or later.
        """
        if self._unwritten and not self._failing:
            await asyncio.to_thread(self._wait_until_written)
        found = {} if open_only else dict(self._closed)
        if not open_only and limit > len(found):
            older = await asyncio.to_thread(self._attempt, lambda database: database.incidents(limit, opened_min)) or []
            found = {incident.id: incident for incident in older} | found
        found |= {incident.id: incident for incident in open_ones}
        since = [incident for incident in found.values() if incident.opened >= opened_min]
        return sorted(since, key=lambda incident: (-incident.opened, incident.id))[:limit]

    def _wait_until_written(self) -> None:
        waiting = dict(self._unwritten)
        self._wait_for(lambda: not any(self._unwritten.get(name) is each for name, each in waiting.items()))

    def _wait_for(self, written: Callable[[], bool]) -> None:
        """Wait until ``written``, until the disk fails, or for too long."""
        with self._written:
            self._written.wait_for(lambda: self._failing or written(), WRITTEN_SECONDS_MAX)

    async def known_incident(self, id: str, open_ones: list[Incident]) -> Incident | None:
        """Find the incident ``id``, open or closed; see :meth:`incidents`."""
        if self._unwritten and not self._failing:
            await asyncio.to_thread(self._wait_until_written)
        found = next((each for each in open_ones if each.id == id), None) or self.find_incident(id)
        return found or await asyncio.to_thread(self._attempt, lambda database: database.incident(id))

    async def kept_between(self, first: int, last: int) -> list[int]:
        """The ids from ``first`` to ``last`` of the snapshots kept in full, including those still being written, in order."""
        newest = {number for number, one in list(self._recent.items()) if one.on_disk or not one.done}
        older = await asyncio.to_thread(self._attempt, lambda database: database.kept_between(first, last))
        return sorted({number for number in newest if first <= number <= last}.union(older or ()))

    # -- writing (separate thread) -------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        work: StoredSnapshot | _Signal = _Signal.WAKE
        while work is not _Signal.STOP:
            try:
                work = self._queue.get(timeout=_RETRY_SECONDS)
            except queue.Empty:
                work = _Signal.WAKE
            if self._unwritten or self._members or self._lost or self._wanted_below > self._reserved:
                self._attempt(self._write_urgent, writes=True)
            if isinstance(work, StoredSnapshot):
                work.prepare()
                written = self._attempt(partial(self._write_snapshot, work), writes=True)
                if written is None:
                    self._write_later([work])
                else:
                    self._is_done(work, on_disk=written)
        with self._database_guard:
            if self._database is not None:
                self._database.close()
        self._stopped.set()

    def _write_urgent(self, database: Database) -> None:
        if self._wanted_below > self._reserved:
            self._write_reserve(database)
        with self._guard:
            members = dict(self._members)
            waiting = list(self._unwritten.items())
        if members:
            database.put_members(members)
            with self._guard:
                self._members = {name: now for name, now in self._members.items() if now is not members.get(name, self)}
        for name, incident in waiting:
            database.put_incident(incident)
            database.pin(incident.first_snapshot)
            database.pin(incident.last_snapshot)
            with self._written:
                if self._unwritten.get(name) is incident:
                    del self._unwritten[name]
                self._written.notify_all()
        for number, finished in list(self._lost.items()):
            self._is_done(finished, on_disk=self._write_snapshot(finished, database))
            del self._lost[number]

    def _write_later(self, lost: list[StoredSnapshot]) -> None:
        """Write the newest snapshots once the disk works again; give the others up."""
        with self._written:
            for finished in lost:
                finished.done = finished.on_disk = False
                self._lost[finished.summary.ref.id] = finished
            for number in sorted(self._lost)[:-_RECENT_MAX]:
                self._lost.pop(number).done = True
            self._written.notify_all()

    def _is_done(self, finished: StoredSnapshot, *, on_disk: bool) -> None:
        with self._written:
            finished.done, finished.on_disk = True, on_disk
            self._written.notify_all()

    def _write_reserve(self, database: Database) -> None:
        below = self._wanted_below
        database.reserve(below)
        self._reserved = below

    def _write_snapshot(self, finished: StoredSnapshot, database: Database) -> bool:
        """Write a snapshot; return whether it could be. An invalid one is given up."""
        verdicts = [verdict.SerializeToString() for verdict in finished.verdicts]
        try:
            database.add_snapshot(finished.summary, finished.document(), verdicts, pinned=finished.pinned)
        except (ValueError, OverflowError, sqlite3.DataError) as error:
            self._log.failure("document not written", error, snapshot=finished.summary.ref.id)
            return False
        return True

    def _attempt(self, work: Callable[[Database], T], *, writes: bool = False) -> T | None:
        """Do ``work`` on the store; None if it fails, with one line in the log when failures begin."""
        with self._database_guard:
            try:
                database = self._open()
                result = work(database)
            except DamagedError as error:
                self._damaged(error)
                return None
            except (sqlite3.Error, OSError, DirectoryInUseError) as error:
                self._failed(error)
                return None
            if writes:
                self._succeeded()
            return result

    def _succeeded(self) -> None:
        """Record a successful write; recovery is logged once no write has failed for a while."""
        if self._failing and time.monotonic() - self._failed_at < _CALM_SECONDS:
            return
        if self._failing:
            self._failing = False
            self._log.info("store works again", directory=self._directory)
        self._metrics.store_writable(writable=True)

    def _open(self) -> Database:
        if self._database is not None and not self._database.is_there():
            self._vanished(self._database)
        if self._lock is None:
            self._lock = lock_directory(self._directory)
        if self._database is None:
            try:
                self._database = Database(self._directory, self._bounds)
            except DamagedError as error:
                self._damaged(error)
                self._database = Database(self._directory, self._bounds)
        return self._database

    def _vanished(self, database: Database) -> None:
        """Start over: the directory or the file was deleted."""
        self._metrics.storage_failed()
        self._log.failure("store vanished", directory=self._directory, consequence="a new store begins")
        database.close()
        self._start_over()
        before, self._lock = self._lock, None
        if before is not None and locks(before, self._directory):  # only the file was deleted
            self._lock = before
        elif before is not None:
            with contextlib.suppress(OSError, DirectoryInUseError):  # reported when the directory is used
                self._lock = lock_directory(self._directory)
            os.close(before)  # only now: a standby waits for it, and would lock the new directory first

    def _damaged(self, error: Exception) -> None:
        kept = set_aside(self._directory, self._clock.now())
        self._log.failure("store damaged", reason=str(error), set_aside=kept, consequence="a new store begins")
        self._start_over()

    def _start_over(self) -> None:
        """Write everything in memory to the next store, which is empty, for restarts and lists."""
        self._database = None
        with self._guard:
            members, open_ones = self._current
            self._members = {**members, **self._members}
            self._unwritten = OrderedDict({**self._closed, **open_ones, **self._unwritten})
            lost = [finished for finished in self._recent.values() if finished.on_disk]
        self._write_later(lost)
        self._reserved = 0
        self._wake()

    def _failed(self, error: Exception) -> None:
        self._failed_at = time.monotonic()
        self._metrics.storage_failed()
        self._metrics.store_writable(writable=False)
        if not self._failing:
            self._failing = True
            with self._written:
                self._written.notify_all()
            reason = getattr(error, "strerror", None) or str(error)
            self._log.failure(
                "store cannot be used", directory=self._directory, reason=reason, consequence="the service goes on"
            )
        if _is_corrupt(error) and self._database is not None:
            self._database.close()
            self._damaged(error)

    def close(self, seconds: float) -> None:
        """Write the queue out, for at most ``seconds``."""
        try:
            self._queue.put(_Signal.STOP, timeout=seconds)
        except queue.Full:
            return
        self._stopped.wait(seconds)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _is_corrupt(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "") in {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
