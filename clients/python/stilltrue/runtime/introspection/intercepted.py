"""What a call's client interceptors do on an event loop: gRPC runs them in a separate task, for which the caller waits.

Rules:

1. Who awaits a call with interceptors waits for that task, and then for the call that it returns.
2. While the task awaits a call, directly or by the known forms, the wait is one for the call. A timeout there is the
   caller's, and what may end the task, or what it awaits, may end the wait.
3. A task that does anything else (sleeps before another try, awaits what is not known) goes on by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.tasks import Task, blocking_future, read

_TASKS_MAX = 100
_BEGINNINGS = frozenset({"initial_metadata", "wait_for_connection"})
"""Waits for less than the end of a call, or its next item."""


@dataclass(frozen=True, slots=True)
class Beneath:
    """The ``tasks`` for which a caller waits, and what ends their waits; ``until`` (the loop's time) a timeout ends one.

    ``known``: whether all that they await are calls (rule 3).
    """

    tasks: tuple[Task, ...] = ()
    handles: tuple[Any, ...] = ()
    until: float | None = None
    known: bool = True


def beneath(future: Any) -> Beneath | None:
    """What is at work beneath a call whose caller hangs on ``future``; None for a call without interceptors."""
    if not compat.runs_interceptors(future):
        return None
    todo, tasks = [future], {future: None}
    handles: list[Any] = []
    until: list[float] = []
    known = True
    while todo and len(tasks) < _TASKS_MAX:
        task = todo.pop()
        on = blocking_future(task)
        chain = compat.chain_of(task.get_coro())
        handles += [on, *_calls_of(chain)]
        if on is None:
            known = known and task.done()
            continue
        if compat.runs_interceptors(on):
            more: Iterable[Any] = (on,)
        elif _awaits_call(on, chain):
            continue
        else:
            awaited = read(task, on)
            known = known and awaited is not None and all(map(compat.is_task, awaited.futures))
            until += [] if awaited is None or awaited.until is None else [awaited.until]
            more = () if awaited is None else awaited.futures
        todo += [one for one in more if compat.is_task(one) and one not in tasks]
        tasks |= dict.fromkeys(one for one in more if compat.is_task(one))
    known = known and not todo
    return Beneath(tuple(tasks), tuple(one for one in handles if one is not None), min(until, default=None), known)


def ends_beneath(future: Any, timers: Mapping[int, float]) -> Iterator[float | None]:
    """When (the loop's time) what is at work beneath a call ends its wait; None: at any time. ``timers``: of tasks."""
    below = beneath(future)
    if below is not None:
        yield from (timers[id(one)] for one in below.tasks if id(one) in timers)
        yield from () if below.until is None else (below.until,)
        yield from () if below.known else (None,)


def _calls_of(chain: Iterable[Any]) -> list[Any]:
    return [one for coroutine in chain for one in compat.names_in(coroutine) if issubclass(type(one), grpc.aio.Call)]


def _awaits_call(future: Any, chain: list[Any]) -> bool:
    """Whether a task hangs on what gRPC keeps for a call, or stands in gRPC's own reading of one."""
    frames = [frame for one in reversed(chain) if (frame := frame_of(one)) is not None]
    own = [frame.f_code for frame in frames if compat.is_grpc(frame.f_code.co_filename)]
    if any(code.co_name in _BEGINNINGS for code in own):
        return False
    if isinstance(future, asyncio.Task):
        return compat.is_grpc_task(future)
    return bool(frames) and compat.is_grpc(frames[0].f_code.co_filename)
