"""What a call's client interceptors do on an event loop. gRPC runs them in a separate task, which the caller awaits.

Rules:

1. The awaiter of a call with interceptors waits for that task, then for the call that the task returns.
2. While the task awaits a call, directly or by a known form, the wait is for that call. A timeout there is the caller's, and
   what may end the task or its awaitable may end the wait.
3. A task that does anything else (sleeps before a retry, awaits something unknown) makes progress by itself, unless it is in a
   known wait of its own, such as that for a lock. Then the awaiter waits for the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.tasks import Task, blocking_future, read

_TASKS_MAX = 100
_BEGINNINGS = frozenset({"initial_metadata", "wait_for_connection"})
"""Waits for an earlier event than the end of a call or its next item."""


@dataclass(frozen=True, slots=True)
class InterceptorTasks:
    """The ``tasks`` that a caller awaits, the ``handles`` that end their waits, and the loop time of their first timeout.

    ``others``: those that do anything but await calls (rule 3). ``complete``: whether all tasks were read.
    """

    tasks: tuple[Task, ...] = ()
    handles: tuple[Any, ...] = ()
    until: float | None = None
    others: tuple[Task, ...] = ()
    complete: bool = True

    def are_held_up(self, waits: Callable[[Task], bool]) -> bool:
        """Whether those that do not await calls are all in known waits, as ``waits`` tells."""
        return self.complete and all(map(waits, self.others))


def interceptor_tasks(future: Any) -> InterceptorTasks | None:
    """The tasks that run the interceptors of the call awaited through ``future``; None for a call without interceptors."""
    if not compat.runs_interceptors(future):
        return None
    todo, tasks = [future], {future: None}
    handles: list[Any] = []
    until: list[float] = []
    others: list[Task] = []
    complete = True
    while todo and len(tasks) < _TASKS_MAX:
        task = todo.pop()
        on = blocking_future(task)
        chain = compat.await_chain(task.get_coro())
        handles += [on, *_calls_of(chain)]
        if on is None:
            complete = complete and task.done()
            continue
        if compat.runs_interceptors(on):
            more: Iterable[Any] = (on,)
        elif _is_awaiting_call(on, chain):
            continue
        else:
            awaited = read(task, on)
            others += [] if awaited is not None and all(map(compat.is_task, awaited.futures)) else [task]
            until += [] if awaited is None or awaited.until is None else [awaited.until]
            more = () if awaited is None else awaited.futures
        todo += [one for one in more if compat.is_task(one) and one not in tasks]
        tasks |= dict.fromkeys(one for one in more if compat.is_task(one))
    return InterceptorTasks(
        tuple(tasks),
        tuple(one for one in handles if one is not None),
        min(until, default=None),
        tuple(others),
        complete and not todo,
    )


def awaits_call(task: Task) -> bool:
    """Whether ``task`` runs the interceptors of a call and awaits that call, so it goes on when its caller does (rule 2)."""
    future = blocking_future(task) if compat.runs_interceptors(task) else None
    return future is not None and _is_awaiting_call(future, compat.await_chain(task.get_coro()))


def interceptor_deadlines(
    interceptors: InterceptorTasks | None, timers: Mapping[int, float], waits: Callable[[Task], bool]
) -> Iterator[float | None]:
    """Yield the loop times at which interceptors end a call's wait; None: at any time.

    ``timers``: first timer by task id; ``waits``: whether a task is in a known wait of its own (rule 3).
    """
    if interceptors is not None:
        yield from (timers[id(one)] for one in interceptors.tasks if id(one) in timers)
        yield from () if interceptors.until is None else (interceptors.until,)
        yield from () if interceptors.are_held_up(waits) else (None,)


def _calls_of(chain: Iterable[Any]) -> list[Any]:
    return [one for coroutine in chain for one in compat.held_by_coroutine(coroutine) if issubclass(type(one), grpc.aio.Call)]


def _is_awaiting_call(future: Any, chain: list[Any]) -> bool:
    """Whether a task is blocked on a gRPC future of a call, or inside gRPC's own code that reads one."""
    frames = [frame for one in reversed(chain) if (frame := frame_of(one)) is not None]
    own = [frame.f_code for frame in frames if compat.is_grpc(frame.f_code.co_filename)]
    if any(code.co_name in _BEGINNINGS for code in own):
        return False
    if isinstance(future, asyncio.Task):
        return compat.is_grpc_task(future)
    return bool(frames) and compat.is_grpc(frames[0].f_code.co_filename)
