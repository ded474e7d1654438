"""Shares an event loop between coroutines with long steps and all else on it: pages are rendered where questions are answered.

Rules:

1. One of the coroutines takes a step at a time, in the order in which they became ready.
2. After each step the loop is left to others for as long as the step took.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Turns:
    """Runs coroutines that share half of the loop's time, all on one event loop."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def run(self, steps: Coroutine[Any, Any, Result]) -> Result:
        """What ``steps`` returns or raises."""
        return await _Steps(steps, self)

    async def begin(self) -> None:
        """Rule 1: wait for the turn."""
        if not self._busy:
            self._busy = True
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it has its turn already
                self._next()
            raise

    def end(self, seconds: float) -> None:
        """Rule 2, after a step that took ``seconds``."""
        asyncio.get_running_loop().call_later(seconds, self._next)

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._busy = False


class _Steps(Generic[Result]):
    """Awaits a coroutine, each step of which takes a turn."""

    def __init__(self, steps: Coroutine[Any, Any, Result], turns: Turns) -> None:
        self._steps = steps
        self._turns = turns

    def __await__(self) -> Generator[Any, Any, Result]:
        step: Callable[[], Any] = partial(self._steps.send, None)
        loop = asyncio.get_running_loop()
        while True:
            mine = True
            try:
                yield from self._turns.begin().__await__()
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's own: a cancellation, say, which it has to end by
                mine, step = False, partial(self._steps.throw, error)
            begun = loop.time()
            try:
                awaited = step()
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                if mine:
                    self._turns.end(loop.time() - begun)
            try:
                given = yield awaited
            except BaseException as error:  # noqa: BLE001 - as above
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, given)
