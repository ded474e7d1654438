"""The coordinator's part in a snapshot that another process assembles and evaluates: header, looks and result.

Rules:

1. An ended snapshot is described by a header (:mod:`detector.assembly.records`), which is written once.
2. The assembly may request a round of looks. This process asks the suspects' agents, and sends all answers in one record.
3. The result answers the questions. Without one within ``assembly_seconds_max`` the answers are UNDETERMINED, with the reason.
4. The verifier's memory travels with headers and results: each header has the memory of the newest result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detector.assembly.cluster import RecordsUnavailableError
from detector.assembly.records import (
    Answers,
    Asked,
    Header,
    Member,
    answers_record,
    header_record,
    key_of,
)
from detector.assembly.results import Result, message_of
from detector.core.protocol.assembler import Assembled
from detector.core.verification.past_rounds import NOTHING
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.membership.members import Roster
from detector.service.detection.verification_rounds import Rounds
from detector.service.settings import Settings
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.requests.look import Look

Put = Callable[[str, bytes], Awaitable[None]]
"""Writes a record with this key; returns once it is stored. Raises :class:`RecordsUnavailableError`."""


class NoResultError(Exception):
    """There is no result for a snapshot; the message says why."""


@dataclass(slots=True, kw_only=True)
class _Round:
    """A round of looks in progress."""

    awaited: dict[ProcessName, ProcessId]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    looks: dict[ProcessName, Look] = field(default_factory=dict)
    unable: dict[ProcessName, str] = field(default_factory=dict)


class RemoteAssembly:
    """Hands snapshots to the assembly and takes its results. Every method is called on the event loop."""

    def __init__(
        self, *, put: Put, roster: Roster, predicates: Sequence[str], settings: Settings, clock: Clock, log: Log
    ) -> None:
        """``put`` writes records; ``predicates``: those to evaluate."""
        self._put = put
        self._roster = roster
        self._predicates = tuple(predicates)
        self._settings = settings
        self._clock = clock
        self._log = log
        self._memory, self._memory_of = NOTHING, SnapshotId(0)
        self._waiting: dict[SnapshotId, asyncio.Future[Result]] = {}
        self._rounds: dict[tuple[SnapshotId, int], _Round] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- a snapshot ----------------------------------------------------------------------------------------------------

    async def result(self, attendance: Assembled, watched: Sequence[PartyName]) -> Result:
        """Write the header of an ended snapshot and wait for the result (rules 1, 3). Raises :class:`NoResultError`."""
        snapshot = attendance.snapshot.ref.id or SnapshotId(0)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[snapshot] = future
        seconds_max = self._settings.assembly_seconds_max
        try:
            await self._put(key_of(self._settings.fleet, snapshot), header_record(self._header(attendance, watched)))
            return await asyncio.wait_for(future, seconds_max)
        except TimeoutError:
            raise NoResultError(f"the assembly gave no result for snapshot {snapshot} within {seconds_max:g} s") from None
        except RecordsUnavailableError as error:
            raise NoResultError(f"snapshot {snapshot} could not be sent to the assembly: {error}") from None
        finally:
            del self._waiting[snapshot]

    def _header(self, attendance: Assembled, watched: Sequence[PartyName]) -> Header:
        ref, settings = attendance.snapshot.ref, self._settings
        return Header(
            fleet=settings.fleet,
            snapshot=ref.id or SnapshotId(0),
            begun=ref.begun or 0.0,
            ended=ref.ended or 0.0,
            begun_by=attendance.begun_by,
            reported=tuple(report.process for report in attendance.reports.values()),
            absent=tuple(Member(process=process, labels=self._labels(process)) for process in attendance.absent),
            predicates=self._predicates,
            settings=settings.predicate_settings,
            scopes={scope.name: dict(scope.labels) for scope in settings.scopes},
            watched=tuple(watched),
            look_give_up_seconds=settings.look_give_up_seconds,
            look_again_seconds_min=settings.look_again_seconds_min,
            memory=self._memory,
        )

    def _labels(self, process: ProcessId) -> Mapping[str, str] | None:
        member = self._roster.get(process.instance)
        return None if member is None else member.labels

    # -- from the assembly ---------------------------------------------------------------------------------------------

    def take(self, record: bytes) -> None:
        """Take a record from the assembly, which may be a duplicate or for another fleet's coordinator."""
        try:
            fleet, message = message_of(record)
        except (ValueError, KeyError, TypeError) as error:
            self._log.failure("result not readable", error)
            return
        if fleet != self._settings.fleet:
            return
        if isinstance(message, Asked):
            self._begin_round(message)
            return
        snapshot = message.assembled.snapshot.ref.id or SnapshotId(0)
        if snapshot > self._memory_of:
            self._memory, self._memory_of = message.memory, snapshot
        future = self._waiting.get(snapshot)
        if future is not None and not future.done():
            future.set_result(message)

    # -- looks (rule 2) ------------------------------------------------------------------------------------------------

    def looked(self, process: ProcessId, look: Look) -> None:
        """Add a look to the newest round of its snapshot that waits for the process."""
        for (snapshot, _), one in reversed(self._rounds.items()):
            if snapshot == look.snapshot and one.awaited.get(process.instance) == process:
                del one.awaited[process.instance]
                one.looks[process.instance] = look
                self._settle(one)
                return

    def unable(self, process: ProcessName, reason: str) -> None:
        """Stop waiting for a process that is gone."""
        for one in self._rounds.values():
            if one.awaited.pop(process, None) is not None:
                one.unable[process] = reason
                self._settle(one)

    def _settle(self, one: _Round) -> None:
        if not one.awaited:
            one.over.set()

    def _begin_round(self, asked: Asked) -> None:
        """Send the look requests, unless the record is a duplicate."""
        snapshot = next((each.request.snapshot for each in asked.asks), SnapshotId(0))
        if snapshot not in self._waiting or (snapshot, asked.round) in self._rounds:
            return
        one = self._rounds[snapshot, asked.round] = _Round(awaited={each.process.instance: each.process for each in asked.asks})
        for each in asked.asks:
            reason = self._roster.send_look(each)
            if reason:
                del one.awaited[each.process.instance]
                one.unable[each.process.instance] = reason
        self._settle(one)
        task = asyncio.get_running_loop().create_task(self._end_round(snapshot, asked.round, one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_round(self, snapshot: SnapshotId, number: int, one: _Round) -> None:
        try:
            await asyncio.wait_for(one.over.wait(), self._settings.look_give_up_seconds)
        except TimeoutError:
            one.awaited.clear()  # later answers are ignored
        answers = Answers(round=number, at=self._clock.now(), looks=one.looks, unable=one.unable)
        try:
            await self._put(key_of(self._settings.fleet, snapshot), answers_record(answers))
        except RecordsUnavailableError as error:
            self._log.warning("looks not sent", snapshot=snapshot, reason=str(error))
        finally:
            future = self._waiting.get(snapshot)
            if future is not None:
                future.add_done_callback(lambda _: self._rounds.pop((snapshot, number), None))
            else:
                self._rounds.pop((snapshot, number), None)

    def close(self) -> None:
        """Cancel everything in progress."""
        for future in self._waiting.values():
            future.cancel()
        for task in self._tasks:
            task.cancel()


class LookDispatcher:
    """Passes agents' looks to every kind of verification round: this process's own and the assembly's."""

    def __init__(self, rounds: tuple[Rounds, ...], remote_assembly: RemoteAssembly | None) -> None:
        self._all: tuple[Rounds | RemoteAssembly, ...] = rounds if remote_assembly is None else (*rounds, remote_assembly)

    def looked(self, process: ProcessId, look: Look) -> None:
        """Pass on a process's look."""
        for each in self._all:
            each.looked(process, look)

    def unable(self, process: ProcessName, reason: str) -> None:
        """Stop waiting for a process that is gone."""
        for each in self._all:
            each.unable(process, reason)

    def close(self) -> None:
        """Close all rounds."""
        for each in self._all:
            each.close()
