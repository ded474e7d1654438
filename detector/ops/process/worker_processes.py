"""Worker processes that leave Ctrl-C to their parent: a terminal sends it to all, and each would print a traceback."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any


class _Process(SpawnProcess):
    """A process that inherits a blocked SIGINT, so that it is not even interrupted while Python starts."""

    def start(self) -> None:
        """Start the process."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    """Spawns such processes; pyarrow's threads do not survive a fork."""

    Process = _Process


class WorkerPool(ProcessPoolExecutor):
    """A pool of such processes. After its block, only tasks that have begun are finished."""

    def __init__(self, processes: int, prepare: Callable[..., None], *arguments: Any) -> None:
        """Each process calls ``prepare(*arguments)`` before its first task."""
        context = _Context()
        self._stopped = context.Event()
        super().__init__(processes, context, initializer=_prepare, initargs=(self._stopped, prepare, *arguments))

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """As in the base class."""
        return super().submit(_do, function, *arguments, **named)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait for the tasks that have begun, and end the processes."""
        if kind is not None:
            self._stopped.set()  # for those that wait in a process's queue, where they cannot be cancelled
        self.shutdown(cancel_futures=kind is not None)


_STOPPED: list[Event] = []
"""This process's: the initializer of a pool can pass it only through a global."""


def _prepare(stopped: Event, prepare: Callable[..., None], *arguments: Any) -> None:
    _STOPPED[:] = [stopped]
    prepare(*arguments)


def _do(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return None if _STOPPED[0].is_set() else function(*arguments, **named)
