"""When the grace period of a gRPC server that is being stopped ends: gRPC then cancels the calls that are left.

Rules:

1. Of several that stop a server, the one whose grace period ends first counts.
2. A threaded server waits for that end in a thread of gRPC's own, whose age Linux shows. A server on an event loop waits for it
   in the task that awaits ``stop()``, and a timer ends that wait.
3. Where no such thread or task is found, the calls may end at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, frames_of_threads, variables_of
from stilltrue.runtime.introspection.linux.own_timers import thread_age
from stilltrue.runtime.introspection.tasks import Task, blocking_future, read, timers

_CHAIN_LENGTH_MAX = 4


def end_of_grace(server: Any, now: float, coroutine_of: Callable[[Task], Any]) -> float:
    """When gRPC cancels the calls of a ``server``, as gRPC keeps it, that is being stopped; ``now`` at the earliest (epoch).

    ``coroutine_of``: the application's coroutine in a task that serves a call.
    """
    return max(now, min((*_ends_on_threads(server, now), *_ends_on_loops(server, now, coroutine_of)), default=now))


def is_stopped_by(coroutine: Any, server: Any) -> bool:
    """Whether a suspended coroutine awaits the end of ``server.stop()``."""
    for one in compat.await_chain(coroutine):
        frame = frame_of(one) if compat.code_of(one) is compat.AIO_STOP else None
        if frame is not None and getattr(variables_of(frame).get("self"), "_server", None) is server:
            return True
    return False


def _ends_on_threads(server: Any, now: float) -> Iterator[float]:
    threads = compat.threads()
    for ident, frames in frames_of_threads().items():
        for frame in frames:
            seconds = compat.grace_period_in(frame, server)
            if seconds is None:
                continue
            thread = threads.get(ident)
            age = None if thread is None else thread_age(thread.native_id or 0)
            yield now if age is None else time.time() - age + seconds


def _ends_on_loops(server: Any, now: float, coroutine_of: Callable[[Task], Any]) -> Iterator[float]:
    for task in _tasks_after(compat.shutdown_future_of(server)):
        coroutine = coroutine_of(task)
        if is_stopped_by(task.get_coro() if coroutine is None else coroutine, server):
            loop, awaited = task.get_loop(), read(task, blocking_future(task), coroutine)
            ends = (None if awaited is None else awaited.until, (timers(loop) or {}).get(id(task)))
            yield min((compat.epoch_of(loop, end) for end in ends if end is not None), default=now)


def _tasks_after(future: Any, length_max: int = _CHAIN_LENGTH_MAX) -> Iterator[Task]:
    """The tasks that a future wakes, also through ``shield`` and ``wait_for``."""
    for callback, _ in compat.callbacks_of(future) if future is not None and length_max else ():
        for one in (*compat.bound_to(callback), *compat.closure_of(callback).values(), *getattr(callback, "args", ())):
            if compat.is_task(one):
                yield one
            elif issubclass(type(one), asyncio.Future):
                yield from _tasks_after(one, length_max - 1)
