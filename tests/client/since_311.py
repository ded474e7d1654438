"""What the tests use of asyncio that Python 3.10 lacks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

if sys.version_info >= (3, 11):
    from asyncio import Runner, timeout
else:
    from async_timeout import timeout

    class Runner:
        """A loop of its own, run in the block; ``run`` gives the coroutine a task."""

        def __init__(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
            self._loop = loop_factory()

        def __enter__(self) -> Runner:
            asyncio.set_event_loop(self._loop)
            return self

        def __exit__(self, *_: object) -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

        def get_loop(self) -> asyncio.AbstractEventLoop:
            return self._loop

        def run(self, main: Coroutine[Any, Any, Any]) -> Any:
            return self._loop.run_until_complete(main)


__all__ = ["Runner", "timeout"]
