"""The inbox of a vertex: one bounded FIFO queue per input, served in turn, skipping held inputs; commands first."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from detector.checkpoints.protocol.points import CompletedPoint, Record
from stilltrue.fifo import Channel
from stilltrue.model import SnapshotId


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier or marker in a channel."""

    point: SnapshotId


@dataclass(frozen=True, slots=True)
class Ended:
    """The last item in a channel, sent when its source has ended."""


@dataclass(frozen=True, slots=True)
class BeginPoint:
    """A command: begin this point."""

    point: SnapshotId


@dataclass(frozen=True, slots=True)
class GiveUpPoint:
    """A command: abandon this point."""

    point: SnapshotId


@dataclass(frozen=True, slots=True)
class PointCompleted:
    """A command: this point is complete; a sink may commit the records before it."""

    point: CompletedPoint


@dataclass(frozen=True, slots=True)
class PauseSource:
    """A command: pause or resume reading from the source."""

    paused: bool


@dataclass(frozen=True, slots=True)
class FinishVertex:
    """A command: end."""


Item = Record | Barrier | Ended
Command = BeginPoint | GiveUpPoint | PointCompleted | PauseSource | FinishVertex


class InboxFullError(RuntimeError):
    """A back edge exceeds its limit of records: the loop produces more than it consumes."""


class Inbox:
    """The inputs of one vertex. A full input makes its sender wait, except a back edge, whose sender would wait for itself."""

    def __init__(self, inputs: Iterable[Channel], *, back: Iterable[Channel], records_max: int, back_records_max: int) -> None:
        self._queues: dict[Channel, deque[Item]] = {one: deque() for one in sorted(inputs)}
        self._turns = deque(self._queues)
        self._held: set[Channel] = set()
        self._back = frozenset(back)
        self._records_max, self._back_records_max = records_max, back_records_max
        self._commands: deque[Command] = deque()
        self._something = asyncio.Event()
        self._room: dict[Channel, asyncio.Event] = {one: asyncio.Event() for one in self._queues}

    @property
    def inputs(self) -> tuple[Channel, ...]:
        """The channels that end here, sorted."""
        return tuple(self._queues)

    def command(self, command: Command) -> None:
        """Give the vertex a command; commands are taken in order and before records."""
        self._commands.append(command)
        self._something.set()

    def restore(self, on: Channel, records: Iterable[Record]) -> None:
        """Put recorded messages back into a channel, before any others are sent on it."""
        self._queues[on].extend(records)
        self._something.set()

    async def put(self, on: Channel, item: Item) -> None:
        """Send ``item``; wait if the channel is full. On a back edge raise InboxFullError instead."""
        queue = self._queues[on]
        if on in self._back:
            if len(queue) >= self._back_records_max:
                raise InboxFullError(f"{on} holds {len(queue)} records: the loop produces more than it consumes")
        else:
            while len(queue) >= self._records_max:
                self._room[on].clear()
                await self._room[on].wait()
        queue.append(item)
        self._something.set()

    def hold(self, on: Channel) -> None:
        """Stop taking items from ``on``."""
        self._held.add(on)

    def release(self, channels: Iterable[Channel]) -> None:
        """Resume taking items from ``channels``."""
        self._held.difference_update(channels)
        self._something.set()

    def take(self) -> Command | tuple[Channel, Item] | None:
        """Take the next command, or else the next item of an input, in turn; None if there is none."""
        if self._commands:
            return self._commands.popleft()
        for _ in range(len(self._turns)):
            on = self._turns[0]
            self._turns.rotate(-1)
            if self._queues[on] and on not in self._held:
                item = self._queues[on].popleft()
                self._room[on].set()
                return on, item
        self._something.clear()
        return None

    async def next(self) -> Command | tuple[Channel, Item]:
        """Wait until :meth:`take` returns something; return it."""
        while (taken := self.take()) is None:
            await self._something.wait()
        return taken

    async def wait(self, seconds: float) -> None:
        """Wait until there may be something to take, at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 can swallow a cancellation
                await self._something.wait()

    @property
    def quiet(self) -> bool:
        """Whether there are no commands and no items, including held inputs."""
        return not self._commands and not any(self._queues.values())
