"""Schedules the reading of first messages, which take memory before anything about their sender is known.

Rules:

1. At most ``most`` messages are read at once; the others wait.
2. While others wait, a read is ended after ``patience_seconds``, so that silent clients keep nobody out. If the event loop was
   blocked, it could not receive in time: such reads get the same time again, a bounded number of times.
3. Connections take turns, however many calls each makes. One whose read was ended comes after all others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from detector.ops.deadline_extension import HELD_SECONDS_MIN

Message = TypeVar("Message")

PATIENCE_SECONDS = 0.25
AGAIN_MAX = 2
"""How often a read gets the same time again (rule 2)."""
SLOW_MAX = 10_000
"""Slow connections remembered; beyond this the oldest is forgotten."""


class FirstMessages:
    """Reads first messages. Every method is called on one event loop."""

    def __init__(self, most: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """``most``, ``patience_seconds``: the bounds of rules 1 and 2."""
        self._free = most
        self._patience_seconds = patience_seconds
        self._again: dict[asyncio.Timeout, int] = {}
        self._due: dict[asyncio.Timeout, float] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._slow: OrderedDict[str, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, peer: str, read: Callable[[], Awaitable[Message]], seconds_max: float) -> Message:
        """Await ``read`` for the connection ``peer`` when it is its turn. Raises ``TimeoutError``."""
        await self._turn(peer)
        try:
            async with asyncio.timeout(seconds_max) as until:
                self._again[until] = 0
                self._due[until] = asyncio.get_running_loop().time() + self._patience_seconds
                self._watch()
                try:
                    message = await read()
                finally:
                    del self._again[until], self._due[until]
        except TimeoutError:
            self._was_slow(peer)
            raise
        finally:
            self._free += 1
            self._next()
        self._slow.pop(peer, None)
        return message

    async def _turn(self, peer: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, deque()).append(future)
        self._next()
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it has just got its turn
                self._free += 1
                self._next()
            raise

    def _next(self) -> None:
        """Start waiting reads while there is room (rule 3)."""
        while self._free and self._waiting:
            peer = next((one for one in self._waiting if one not in self._slow), None) or next(iter(self._waiting))
            futures = self._waiting[peer]
            future = futures.popleft()
            self._waiting.move_to_end(peer)
            if not futures:
                del self._waiting[peer]
            if not future.done():
                future.set_result(None)
                self._free -= 1
        self._watch()

    def _watch(self) -> None:
        """Set the timer for the longest running read (rule 2)."""
        if self._timer is None and self._waiting and self._due:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), min(self._due.values()))
            self._timer = loop.call_at(at, self._end_slow_ones, at)

    def _end_slow_ones(self, at: float) -> None:
        self._timer = None
        now, patience = asyncio.get_running_loop().time(), self._patience_seconds
        held = now - at >= HELD_SECONDS_MIN
        for until, due in self._due.items():
            if not self._waiting or due > now:
                continue
            self._due[until] = now + patience
            if held and self._again[until] < AGAIN_MAX:
                self._again[until] += 1
            else:
                until.reschedule(now)  # ends the read
        self._watch()

    def _was_slow(self, peer: str) -> None:
        self._slow[peer] = None
        while len(self._slow) > SLOW_MAX:
            self._slow.popitem(last=False)
