"""Event loops that no thread runs, because they have been stopped, or nobody has started them: their work waits for a runner.

Rules:

1. Whoever has such a loop may run it, and then it does all that it has scheduled. So may whoever has one of its tasks or
   futures, which know their loop. Nobody else can: the loop leads to what it has scheduled, and a task to what it refers to.
2. A loop of asyncio's own that is released is closed, which drops what it has scheduled and completes nothing.
3. A thread also has the loop that was set for it (``set_event_loop()``). Which thread that is, is not known: so all threads
   have it, other than gRPC's and the agent's.
4. A method of a server that can reach the loop may run it, or hand it to somebody who does, if its code mentions one of
   :data:`RUNNING_LOOPS`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import CoroutineType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_ours
from stilltrue.runtime.introspection.tasks import Task

RUNNING_LOOPS = frozenset({"run", "run_forever", "run_until_complete", "_run_once", "run_app", "start", "serve_forever"})
"""Names of operations that run a loop, or begin a thread that is to run it."""


def tasks_of_stopped_loops() -> list[Task]:
    """The tasks of such loops, also those that have ended."""
    return [task for task in compat.tasks_kept() if compat.is_stopped_loop(task.get_loop())]


def coroutines_of(tasks: Iterable[Task]) -> Iterator[int]:
    """The identities of the coroutines that these tasks await."""
    for task in tasks:
        yield from (id(one) for one in compat.await_chain(task.get_coro()) if type(one) is CoroutineType)


def is_of_stopped_loop(thing: Any, coroutines: Collection[int] = ()) -> bool:
    """Whether it is such a loop, or a task or future of one, or one of these ``coroutines``, or one that has not begun."""
    if compat.is_stopped_loop(thing) or id(thing) in coroutines:
        return True
    if type(thing) is CoroutineType:
        return inspect.getcoroutinestate(thing) == inspect.CORO_CREATED
    return type(thing) in (asyncio.Future, asyncio.Task) and compat.is_stopped_loop(thing.get_loop())


def has_stopped(task: Any) -> bool:
    """Whether a task's loop is such a loop."""
    return compat.is_task(task) and compat.is_stopped_loop(task.get_loop())


def that_may_run(running: Mapping[int, Sequence[FrameType]]) -> Iterator[int]:
    """The threads that may have such a loop as their own (rule 3); ``running``: the frames of all threads."""
    for ident, frames in running.items():
        codes = [one.f_code for one in frames if one.f_code.co_filename != threading.__file__]
        of_agent = bool(codes) and is_ours(codes[-1])
        if not of_agent and not all(compat.is_grpc(code.co_filename) or is_ours(code) for code in codes):
            yield ident
