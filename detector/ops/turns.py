"""Shares an event loop between coroutines with long steps, such as rendering pages, and everything else on it.

Rules:

1. The coroutines take steps one at a time, in the order in which they became ready.
2. After each step, they pause for as long as the step took.
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
        """Run ``steps``; returns or raises what it does."""
        return await _Steps(steps, self)

    async def begin(self) -> None:
        """Wait for the turn (rule 1)."""
        if not self._busy:
            self._busy = True
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it has just got its turn
                self._next()
            raise

    def end(self, seconds: float) -> None:
        """End the turn after a step that took ``seconds`` (rule 2)."""
        asyncio.get_running_loop().call_later(seconds, self._next)

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._busy = False


class _Steps(Generic[Result]):
    """Awaits a coroutine, taking a turn for each step."""

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
            except BaseException as error:  # noqa: BLE001 - passed to the coroutine, for example a cancellation
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
