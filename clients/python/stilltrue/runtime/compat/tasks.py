"""Reads private parts of asyncio's tasks: all of a loop, what they await, and whether they are being cancelled."""

from __future__ import annotations

import asyncio
import asyncio.base_subprocess
import asyncio.subprocess
import gc
import sys
from asyncio import futures, tasks
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from itertools import islice
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType
from typing import Any
from weakref import WeakSet, ref

from stilltrue.runtime.compat.callables import WRAPPERS, Task, Where, code_of
from stilltrue.runtime.introspection.frames import awaited_by, frame_of

CHAIN_LENGTH_MAX = 200
ASYNCIO_WAITS = frozenset({asyncio.locks.__file__, asyncio.queues.__file__})
"""Files of asyncio's own waits for events, locks and queues."""
_AWAITING = frozenset({"coroutine", "generator", "async_generator", *WRAPPERS})
_SLEEP: CodeType = asyncio.sleep.__code__
_OF_CHILDREN = frozenset({asyncio.base_subprocess.__file__, asyncio.subprocess.__file__})
REMOVE_FROM_SET: Any = getattr(WeakSet(), "_remove").__code__  # noqa: B009 - private
"""The callback of each weak reference in a set."""
_GATHERING: type = tasks._GatheringFuture  # type: ignore[attr-defined]  # noqa: SLF001 - what asyncio.gather returns
_CANCELLED_AT_ONCE = frozenset({asyncio.Future, asyncio.Task, _GATHERING})


def tasks_of(loop: asyncio.AbstractEventLoop) -> list[Task] | None:
    """The unfinished tasks of ``loop``; works from any thread."""
    try:
        return list(asyncio.all_tasks(loop))
    except RuntimeError:  # the set kept changing during the read
        return None


def known_tasks() -> list[Task]:
    """The unfinished tasks that asyncio keeps in its set for all loops; none if it has no such set."""
    return [one for one in tasks_kept() if not one.done()]


def tasks_kept() -> list[Task]:
    """All tasks that asyncio lists for any loop, also those that have ended; none if it has no such set."""
    every = getattr(tasks, "_all_tasks", None) or getattr(tasks, "_scheduled_tasks", None)
    if type(every) is not WeakSet:
        return []
    with suppress(RuntimeError):  # the set changed during the read
        return list(every)
    return []


def first_tasks_of(loop: asyncio.AbstractEventLoop, most: int) -> list[Task]:
    """As :func:`tasks_of`, but at most so many; it does not read the others, if asyncio keeps its tasks in one plain set."""
    every = getattr(tasks, "_all_tasks", None) or getattr(tasks, "_scheduled_tasks", None)
    if type(every) is WeakSet and isinstance(asyncio.all_tasks, FunctionType) and len(every) > most:
        with suppress(RuntimeError):  # the set changed during the read
            mine = (one for one in every if futures._get_loop(one) is loop and not one.done())  # type: ignore[attr-defined]  # noqa: SLF001 - as all_tasks does
            return list(islice(mine, most))
    return (tasks_of(loop) or [])[:most]


def is_registry_ref(weak: Any) -> bool:
    """Whether a weak reference belongs to one of asyncio's registries of all tasks, or of all asynchronous generators.

    The latter only if the generator is being asked for its next item: then nobody else can resume or close it.
    """
    remove = weak.__callback__ if type(weak) is ref else None
    if type(remove) is not FunctionType:
        return False
    thing = weak()
    if type(thing) is AsyncGeneratorType:
        return remove.__code__ is REMOVE_FROM_SET and thing.ag_running
    sets = (getattr(tasks, name, None) for name in ("_all_tasks", "_scheduled_tasks"))
    return any(remove is getattr(one, "_remove", None) for one in sets if type(one) is WeakSet)


def is_gathering(future: Any) -> bool:
    """Whether ``future`` was returned by ``asyncio.gather``."""
    return issubclass(type(future), _GATHERING)


def is_task(future: Any) -> bool:
    """Whether ``future`` is a task; those of ``backports.asyncio.runner`` are asyncio's own in Python."""
    return issubclass(type(future), (asyncio.Task, tasks._PyTask))  # type: ignore[attr-defined]  # noqa: SLF001


def is_finished_task(thing: Any) -> bool:
    """Whether it is a task of asyncio's own that has ended: it only keeps its result, or its error with the frames of that."""
    return type(thing) in (asyncio.Task, tasks._PyTask) and thing.done()  # type: ignore[attr-defined]  # noqa: SLF001


def task_waits_at(task: Task) -> Where | None:
    """The position at which ``task`` waits for another party: on a queue, an event or a future.

    None if it sleeps, makes a call, runs, or waits for a child process, which ends by itself.
    """
    future = getattr(task, "_fut_waiter", None)
    if future is None or is_task(future) or future.done() or task.done():
        return None
    chain = await_chain(task.get_coro())
    codes = [code_of(one) for one in chain]
    if not chain or codes[-1] in {None, _SLEEP} or any(code is not None and _is_of_child(code) for code in codes):
        return None
    return tuple((frame.f_code, frame.f_lasti) for one in chain if (frame := frame_of(one)) is not None)


def _is_of_child(code: CodeType) -> bool:
    return code.co_filename in _OF_CHILDREN


def task_waits_in_asyncio(task: Task) -> bool:
    """Whether ``task`` waits for an event, a condition, a lock or a queue of asyncio."""
    chain = await_chain(task.get_coro())
    code = code_of(chain[-1]) if chain else None
    return code is not None and code.co_filename in ASYNCIO_WAITS


def standing_tasks(tasks: Iterable[Task]) -> dict[Task, Where]:
    """The positions of these tasks, outermost frame first."""
    return {
        task: tuple(
            (frame.f_code, frame.f_lasti) for one in await_chain(task.get_coro()) if (frame := frame_of(one)) is not None
        )
        for task in tasks
    }


_BY_LOOP = getattr(asyncio.tasks, "_current_tasks", None)


current_task_of: Callable[[asyncio.AbstractEventLoop], Task | None] = (
    _BY_LOOP.get if isinstance(asyncio.current_task, FunctionType) and isinstance(_BY_LOOP, dict) else asyncio.current_task
)
"""Returns the task that a loop is running, from any thread. asyncio's own is a Python function up to Python 3.11."""


_TELLS_NOTHING = not hasattr(asyncio.Task, "cancelling")


def is_being_cancelled(task: Task) -> bool:
    """Whether a requested cancellation has not reached ``task`` yet.

    Once it has arrived, the task only awaits its cleanup. Futures, tasks and gatherings are cancelled at once or receive the
    request themselves. Other awaitables, and tasks in an anyio cancel scope, are cancelled repeatedly. Tasks of Python 3.10 do
    not tell whether they have been cancelled: there, one that awaits another awaitable, or is in such a scope, may have been.
    """
    scopes = _scopes_of_anyio()
    todo, seen = [task], {id(task)}
    while todo:
        one = todo.pop()
        cancelling = getattr(one, "cancelling", None)  # tasks of other libraries may lack it
        if getattr(one, "_must_cancel", False):
            return True
        if not (_TELLS_NOTHING and is_task(one) if cancelling is None else cancelling()):
            continue
        future = getattr(one, "_fut_waiter", None)
        if future is None or future.done() or type(future) not in _CANCELLED_AT_ONCE or one in scopes:
            return True
        below = [child for child in getattr(future, "_children", (future,)) if not child.done() and id(child) not in seen]
        if any(type(child) not in _CANCELLED_AT_ONCE for child in below):
            return True
        todo += filter(is_task, below)
        seen.update(map(id, below))
    return False


def _scopes_of_anyio() -> Container[Any]:
    """The tasks that are, or were, in an anyio cancel scope."""
    found: Container[Any] = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", ())
    return found


def await_chain(coroutine: Any) -> list[Any]:
    """``coroutine`` and the coroutines it awaits, outermost first, as far as Python can look into them."""
    chain: list[Any] = []
    while _is_awaiting(coroutine) and len(chain) < CHAIN_LENGTH_MAX:
        if type(coroutine) is CoroutineType:
            chain.append(coroutine)
            coroutine = awaited_by(coroutine)
            continue
        if hasattr(coroutine, "cr_await") or frame_of(coroutine) is not None:
            chain.append(coroutine)
        coroutine = awaited_below(coroutine)
    return chain


def _is_awaiting(thing: Any) -> bool:
    """Whether ``thing`` is a Python or Cython coroutine or generator. Only those are asked what they await."""
    kind = type(thing)
    if kind is CoroutineType:
        return True
    if kind.__name__ not in _AWAITING:
        return False
    return kind.__module__ == "builtins" or type.__repr__(kind).startswith("<class '_cython")


def awaited_below(coroutine: Any) -> Any:
    """What a suspended coroutine or generator awaits, also within the compiled wrapper of a coroutine; None if unknown."""
    below = awaited_by(coroutine)
    if below is None and type(coroutine).__name__ in WRAPPERS:
        return next((one for one in gc.get_referents(coroutine) if frame_of(one) is not None), None)
    return below


class _Nothing:
    """Stands for what Python 3.10 lacks; nothing is an instance."""


TASK_GROUP: type = getattr(asyncio, "TaskGroup", _Nothing)


BARRIERS: tuple[Any, ...] = (asyncio.Barrier,) if sys.version_info >= (3, 11) else ()
BARRIER_WAITS: tuple[Any, ...] = tuple(one.wait for one in BARRIERS)
