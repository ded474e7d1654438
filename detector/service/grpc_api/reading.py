"""Whose first message is read now, and whose later: it is held in memory before anybody has seen what it is.

Rules:

1. At most ``most`` are read at once; the others wait.
2. A read that has taken ``patience_seconds`` ends while others wait: who sends nothing keeps nobody out.
3. Connections take turns, however many calls each of them makes. One whose read was ended comes after all others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

Message = TypeVar("Message")

PATIENCE_SECONDS = 0.25
SLOW_MAX = 10_000
"""Connections that are remembered as slow; beyond it the first is forgotten."""


class Reading:
    """Reads first messages, all on one event loop."""

    def __init__(self, most: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """The bounds of rules 1 and 2."""
        self._free = most
        self._patience_seconds = patience_seconds
        self._begun: dict[asyncio.Timeout, float] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._slow: OrderedDict[str, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def first(self, peer: str, read: Callable[[], Awaitable[Message]], seconds_max: float) -> Message:
        """What ``read`` gives for the connection ``peer``. Raises ``TimeoutError``."""
        await self._turn(peer)
        try:
            async with asyncio.timeout(seconds_max) as until:
                self._begun[until] = asyncio.get_running_loop().time()
                self._watch()
                try:
                    message = await read()
                finally:
                    del self._begun[until]
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
            if not future.cancelled():  # it has its turn already
                self._free += 1
                self._next()
            raise

    def _next(self) -> None:
        """Give the free places away, by rule 3."""
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
        """Rule 2: the one that has been read for the longest is the first to end."""
        if self._timer is None and self._waiting and self._begun:
            due = min(self._begun.values()) + self._patience_seconds
            self._timer = asyncio.get_running_loop().call_at(due, self._end_slow_ones)

    def _end_slow_ones(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for until, begun in self._begun.items():
            if self._waiting and begun + self._patience_seconds <= now:
                until.reschedule(now)
                self._begun[until] = now + self._patience_seconds  # it ends, and is not looked at meanwhile
        self._watch()

    def _was_slow(self, peer: str) -> None:
        self._slow[peer] = None
        while len(self._slow) > SLOW_MAX:
            self._slow.popitem(last=False)
