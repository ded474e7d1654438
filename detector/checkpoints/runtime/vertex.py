"""A running vertex: takes from its inbox, runs its source or operator, and carries out its recorder's effects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, assert_never

from detector.checkpoints.graph.job import Commits, Made, Operator, Source
from detector.checkpoints.graph.router import Router
from detector.checkpoints.protocol.points import Local, Record, Value
from detector.checkpoints.runtime.inbox import (
    Barrier,
    BeginPoint,
    Command,
    Ended,
    FinishVertex,
    GiveUpPoint,
    Inbox,
    Item,
    PauseSource,
    PointCompleted,
)
from stilltrue.fifo import Abandoned, Channel, ChannelRecorder, Cut, Effect, Finished, Hold, Release, SendMarker
from stilltrue.model import ProcessName, SnapshotId

_RECORDS_A_TURN = 64
_IDLE_SECONDS = 0.005


class Watcher(Protocol):
    """The listener of a vertex: its pipeline."""

    def acknowledged(self, record: Local) -> None:
        """The vertex has recorded its state for a point."""
        ...

    def declined(self, vertex: ProcessName, point: SnapshotId) -> None:
        """The vertex could not record its state."""
        ...

    def exhausted(self, vertex: ProcessName) -> None:
        """The vertex is a source and has no more records."""
        ...

    def finished(self, vertex: ProcessName) -> None:
        """The vertex has ended."""
        ...


class Vertex:
    """One vertex; :meth:`run` returns when the vertex ends, and raises what its operator raises.

    ``regular`` are the inputs that are not back edges.
    """

    def __init__(
        self,
        name: ProcessName,
        *,
        made: Made,
        recorder: ChannelRecorder[Value, Record],
        regular: frozenset[Channel],
        inbox: Inbox,
        router: Router,
        outboxes: Mapping[Channel, Inbox],
        watcher: Watcher,
    ) -> None:
        self.name = name
        self.inbox = inbox
        self.made = made
        self._recorder = recorder
        self._open = set(regular)
        self._in_loop = len(regular) < len(inbox.inputs)
        self._operator = made if isinstance(made, Operator) else None
        self._source = None if isinstance(made, Operator) else made
        self._router = router
        self._outboxes = outboxes
        self._watcher = watcher
        self._begin_later: list[SnapshotId] = []
        self._ended = False
        self._paused = False
        self._exhausted = False

    async def run(self) -> None:
        """Run to the end."""
        while not self._ended:
            await (self._work() if self._source is None else self._read(self._source))
        for on in sorted(self._outboxes):
            await self._outboxes[on].put(on, Ended())
        self._watcher.finished(self.name)

    def restored(self, on: Channel, count: int) -> None:
        """``count`` recorded records have been put back into ``on``; count them as sent."""
        for _ in range(count):
            self._recorder.sent(on)

    @property
    def resting(self) -> bool:
        """Whether the vertex emits nothing unless it receives something."""
        return self._source is None or self._paused or self._exhausted or self._ended

    async def _work(self) -> None:
        """Process up to ``_RECORDS_A_TURN`` records, then let other vertices run."""
        await self._step(await self.inbox.next())
        for _ in range(_RECORDS_A_TURN):
            taken = None if self._ended else self.inbox.take()
            if taken is None:
                return
            await self._step(taken)
        await asyncio.sleep(0)

    async def _read(self, source: Source) -> None:
        """Process a command if there is one; otherwise read from the source unless it is paused or exhausted."""
        resting = self._exhausted or self._paused
        taken = await self.inbox.next() if resting else self.inbox.take()
        if taken is not None:
            await self._step(taken)
            return
        values = source.read()
        if values is None:
            self._exhausted = True
            self._watcher.exhausted(self.name)
            return
        read = False
        for value in values:
            self._router.emit(value)
            read = True
        await self._send_emitted()
        await (asyncio.sleep(0) if read else self.inbox.wait(_IDLE_SECONDS))

    async def _step(self, taken: Command | tuple[Channel, Item]) -> None:
        match taken:
            case (on, Record() as record):
                await self._receive(on, record)
            case (on, Barrier(point=point)):
                await self._obey(self._recorder.marked(on, point, self.made.state))
            case (on, Ended()):
                await self._end_of(on)
            case BeginPoint(point=point):
                self._begin_later.append(point)
                await self._begin()
            case GiveUpPoint(point=point):
                self._begin_later = [one for one in self._begin_later if one != point]
                await self._obey(self._recorder.gives_up(point))
            case PointCompleted(point=point):
                if isinstance(self.made, Commits):
                    self.made.committed(point)
            case PauseSource(paused=paused):
                self._paused = paused
            case FinishVertex():
                self._ended = True
            case _ as never:
                assert_never(never)

    async def _receive(self, on: Channel, record: Record) -> None:
        assert self._operator is not None, f"{self.name} is a source, yet {on} leads to it"
        await self._obey(self._recorder.received(on, record))
        self._operator.handle(record.value, self._router.emit)
        await self._send_emitted()

    async def _end_of(self, on: Channel) -> None:
        await self._obey(self._recorder.ended(on))
        self._open.discard(on)
        await self._begin()
        self._ended = not self._open and not self._in_loop  # a loop ends with its pipeline, never before

    async def _begin(self) -> None:
        """Begin the requested points once no regular input is open (the end of one may still be on its way)."""
        while self._begin_later and not self._open:
            await self._obey(self._recorder.begins(self._begin_later.pop(0), self.made.state))

    async def _send_emitted(self) -> None:
        """Send the records that this step emitted; the next step, and so the next cut, waits until all are sent."""
        for on, record in self._router.taken():
            self._recorder.sent(on)
            await self._outboxes[on].put(on, record)

    async def _obey(self, effects: tuple[Effect[Value, Record], ...]) -> None:
        for effect in effects:
            match effect:
                case Cut():
                    pass  # the record has the state
                case SendMarker(channel=on, snapshot=point):
                    await self._outboxes[on].put(on, Barrier(point))
                case Finished(record=record):
                    self._watcher.acknowledged(record)
                case Abandoned(snapshot=point):
                    self._watcher.declined(self.name, point)
                case Hold(channel=on):
                    self.inbox.hold(on)
                case Release(channels=channels):
                    self.inbox.release(channels)
                case _ as never:
                    assert_never(never)
