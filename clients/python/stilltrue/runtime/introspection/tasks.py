"""Reads what an asyncio task waits for from the task itself, from any thread, without running application code.

Only fully understood waits are reported; anything else counts as work. Known forms:

- ``await task``: that task must end.
- ``await asyncio.gather(...)``: one of the unfinished children must end, because it may fail and the gathering with it; once
  the others are done without failing, only the stuck ones are left. With ``return_exceptions=True`` all must end.
- ``asyncio.wait``: one of them (FIRST_COMPLETED, FIRST_EXCEPTION) or all (ALL_COMPLETED); its timeout ends the wait.
- ``asyncio.wait_for``: the one task; its timeout ends both the wait and the task.
- the next one of ``asyncio.as_completed``: one of those that are not done must end; its timeout ends the wait, and no task.
- leaving a ``TaskGroup``: one of its tasks must end, because it may fail, and then the group cancels the others. Before that,
  in the group's block, such a failure cancels the task, too.
- ``asyncio.shield``: as the shielded awaitable, which a cancellation does not reach.
"""

from __future__ import annotations

import asyncio
import functools
import gc
from asyncio import tasks
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType, GeneratorType, MemberDescriptorType, MethodType
from typing import Any

import grpc.aio

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of

Task = asyncio.Task[Any]
CHAIN_LENGTH_MAX = 200
_GRPC_AIO = str(Path(grpc.aio.__file__).parent)

_WAIT: CodeType = tasks._wait.__code__  # type: ignore[attr-defined]  # noqa: SLF001 - where asyncio.wait blocks
_WAIT_FOR: CodeType = asyncio.wait_for.__code__
_GATHERING: type = tasks._GatheringFuture  # type: ignore[attr-defined]  # noqa: SLF001 - what asyncio.gather returns


_LEAVING = frozenset(
    method.__code__ for name in ("__aexit__", "_aexit") if (method := compat.TASK_GROUP.__dict__.get(name)) is not None
)
_SHIELDING = frozenset(
    one for one in asyncio.shield.__code__.co_consts if isinstance(one, CodeType) and one.co_name == "_outer_done_callback"
)
"""The callback that a shield runs when it is done itself."""
_SHIELDED = frozenset(
    one for one in asyncio.shield.__code__.co_consts if isinstance(one, CodeType) and one.co_name == "_inner_done_callback"
)
"""The callback that a shield runs when the shielded future is done."""
_ITERATOR: Any = getattr(tasks, "_AsCompletedIterator", None)
_AS_COMPLETED: CodeType = asyncio.as_completed.__code__
_NEXT_COMPLETED = frozenset(
    one for one in _AS_COMPLETED.co_consts if isinstance(one, CodeType) and one.co_name == "_wait_for_one"
) | ({_ITERATOR._wait_for_one.__code__} if _ITERATOR is not None else set())  # noqa: SLF001
"""What is awaited for the next one of ``as_completed``: a method since Python 3.13, an inner function before."""
_KNOWN = frozenset(map(id, (*_LEAVING, _WAIT, _WAIT_FOR, *_NEXT_COMPLETED)))
"""By identity, because hashing a code object reads all of it."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """One or all (``needs_all``) of the unfinished ``futures``; the wait ends by itself at the loop time ``until``.

    ``shielded``: those that are not cancelled with their waiter.
    """

    futures: tuple[Any, ...]
    needs_all: bool = False
    until: float | None = None
    shielded: frozenset[Any] = frozenset()


def blocking_future(task: Task) -> Any:
    """The future that suspends ``task``; None if it runs, may run, or this is unknown."""
    future = getattr(task, "_fut_waiter", None)
    return None if future is None or task.done() or future.done() else future


def read(task: Task, future: Any, coroutine: Any = None) -> Awaited | None:
    """What ``task`` waits for while suspended on ``future``; None if that is not understood.

    ``coroutine``: where to start if not at the task's own coroutine (which may be wrapped in one that Python cannot look into).
    """
    found = _read(task, future, coroutine)
    return None if found is None else _look_through_shields(found)


def awaits_tasks(future: Any, frames: Sequence[FrameType]) -> bool:
    """Whether :func:`read` may find tasks, judged only by the blocking future and the ``frames``."""
    if isinstance(future, asyncio.Task | _GATHERING) or any(id(one.f_code) in _KNOWN for one in frames[:2]):
        return True
    return future is not None and _shielded_by(future) is not None


def _look_through_shields(found: Awaited) -> Awaited:
    """Replace shields by what they shield; a shielded gathering is read, too."""
    inner = {one: _shielded_by(one) for one in found.futures}
    shielded = tuple(one for one in inner.values() if one is not None)
    if not shielded:
        return found
    if len(found.futures) == 1 and isinstance(shielded[0], _GATHERING):
        left = _not_done(getattr(shielded[0], "_children", ()))
        return replace(found, futures=left, needs_all=_returns_exceptions(left), shielded=frozenset(left))
    futures = _not_done(one if shielded_one is None else shielded_one for one, shielded_one in inner.items())
    return replace(found, futures=futures, shielded=frozenset(shielded))


def is_of_shield(callback: Any) -> bool:
    """Whether a future's callback is that of a shield: if the shield is cancelled, the future is not."""
    return getattr(callback, "__code__", None) in _SHIELDED


def _shielded_by(future: Any) -> Any:
    """The future shielded by ``future`` if ``asyncio.shield`` returned it, else None."""
    for callback, _ in compat.callbacks_of(future):
        code = getattr(callback, "__code__", None)
        if code in _SHIELDING and "inner" in code.co_freevars:
            return callback.__closure__[code.co_freevars.index("inner")].cell_contents
    return None


def _read(task: Task, future: Any, coroutine: Any) -> Awaited | None:
    if isinstance(future, _GATHERING):
        left = _not_done(getattr(future, "_children", ()))
        return Awaited(left, needs_all=_returns_exceptions(left)) if left else None
    if _is_inside_grpc(future):
        return None  # the recorded call itself is the wait
    start = coroutine if coroutine is not None else task.get_coro()
    frame = _innermost_known(start)
    if frame is not None and frame.f_code in _NEXT_COMPLETED:
        return _next_completed(frame, start)
    if frame is not None:
        return _read_frame(frame, future)
    return _awaited_directly(future)


def _awaited_directly(future: Any) -> Awaited | None:
    """An awaited task or shield; None for any other future, since nothing is known about its completer."""
    return Awaited((future,)) if isinstance(future, asyncio.Task) or _shielded_by(future) is not None else None


def _is_inside_grpc(future: Any) -> bool:
    """Whether ``future`` is a task that ``grpc.aio`` created for a call."""
    if not isinstance(future, asyncio.Task):
        return False
    code = getattr(compat.coroutine_of(future), "cr_code", None)
    return code is not None and code.co_filename.startswith(_GRPC_AIO)


def _read_frame(frame: FrameType, future: Any) -> Awaited | None:
    code, names = frame.f_code, variables_of(frame)
    if code in _LEAVING:
        group = names.get("self")
        left = _not_done(getattr(group, "_tasks", ()))
        return Awaited(left) if left and getattr(group, "_on_completed_fut", None) is future else None
    if names.get("waiter") is not future:
        return _awaited_directly(future)
    until = _when(names.get("timeout_handle"))
    if code is _WAIT_FOR:
        return Awaited((names["fut"],), until=until)
    left = _not_done(names["fs"])
    if len(left) < len(names["fs"]) and names["return_when"] == asyncio.FIRST_COMPLETED:
        return None  # one is done already, so the waiter continues
    return Awaited(left, needs_all=names["return_when"] == asyncio.ALL_COMPLETED, until=until) if left else None


def _next_completed(frame: FrameType, start: Any) -> Awaited | None:
    """One of the futures of an ``as_completed``; None if one of them is done already, or they cannot be found.

    Up to Python 3.12 they are variables of its generator, which a loop of the awaiting coroutine has on its stack.
    """
    names = variables_of(frame)
    owner: Any = names.get("self")
    done = names.get("done")
    if _ITERATOR is not None and type(owner) is _ITERATOR:
        todo, handle = owner._todo, owner._timeout_handle  # noqa: SLF001 - no public access
    else:
        every = (held for one in compat.await_chain(start) for held in gc.get_referents(one) if type(held) is GeneratorType)
        of = next((one for one in map(_variables_of_as_completed, every) if one and one.get("done") is done is not None), None)
        if of is None:
            return None
        todo, handle = of.get("todo"), of.get("timeout_handle")
    every_one = tuple(todo or ())
    left = _not_done(every_one)
    return Awaited(left, until=_when(handle), shielded=frozenset(left)) if left and len(left) == len(every_one) else None


def _variables_of_as_completed(generator: Any) -> dict[str, Any]:
    """The variables of a suspended ``as_completed``; empty for any other generator."""
    frame = frame_of(generator) if generator.gi_code is _AS_COMPLETED else None
    return {} if frame is None else dict(variables_of(frame))


def _innermost_known(coroutine: Any) -> FrameType | None:
    """The innermost frame of the await chain if it is a known form directly above a future, else None."""
    for _ in range(CHAIN_LENGTH_MAX):
        below = compat.awaited_below(coroutine)
        if id(compat.code_of(coroutine)) in _KNOWN and (frame := frame_of(coroutine)) is not None:
            return frame
        if below is None:
            return None
        coroutine = below
    return None


def _not_done(futures: Any) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(future for future in list(futures) if not future.done()))


def is_of_gathering(callback: Any, gathering: Any) -> bool:
    """Whether a future's callback is that by which it is a child of ``gathering``, which ``asyncio.gather`` returned."""
    code = getattr(callback, "__code__", None)
    if (
        code is None
        or getattr(callback, "__qualname__", "") != "gather.<locals>._done_callback"
        or "outer" not in code.co_freevars
    ):
        return False
    return bool(callback.__closure__[code.co_freevars.index("outer")].cell_contents is gathering)


def _returns_exceptions(children: tuple[Any, ...]) -> bool:
    """Whether ``gather`` returns exceptions, read from the callback on its children."""
    for callback, _ in compat.callbacks_of(children[0]):
        code = getattr(callback, "__code__", None)
        if code is None or getattr(callback, "__qualname__", "") != "gather.<locals>._done_callback":
            continue
        if "return_exceptions" in code.co_freevars:
            return callback.__closure__[code.co_freevars.index("return_exceptions")].cell_contents is True
    return False


def _when(handle: Any) -> float | None:
    return None if handle is None else float(handle.when())


def group_of(task: Task) -> Any:
    """The ``TaskGroup`` that cancels ``task`` when another of its tasks fails, or None."""
    for callback, _ in compat.callbacks_of(task):
        for owner in compat.bound_to(callback):
            if issubclass(type(owner), compat.TASK_GROUP):
                return None if compat.serves_alone(task) else owner
    return None


def siblings_of(task: Task, coroutine: Any = None) -> tuple[Task, ...]:
    """The tasks whose failure cancels ``task``; ``coroutine`` as for :func:`read`.

    They are the others of its ``TaskGroup`` and the task that leaves the group, and the tasks of the groups in whose ``async
    with`` block it is.
    """
    group = group_of(task)
    among = [] if group is None else [*list(group._tasks), group._parent_task]  # noqa: SLF001
    led = [child for inner in _groups_around(task, coroutine) for child in list(inner._tasks) if not compat.serves_alone(child)]  # noqa: SLF001
    return tuple(other for other in dict.fromkeys((*among, *led)) if other is not task)


def groups_of(task: Task) -> list[Any]:
    """The ``TaskGroup`` objects that cancel ``task`` when a task of theirs fails: its own, and those in whose blocks it is."""
    own = group_of(task)
    return [*(() if own is None else (own,)), *_groups_around(task, None)]


def _groups_around(task: Task, coroutine: Any) -> list[Any]:
    """The task groups in whose ``async with`` blocks a suspended task is: its coroutines hold the exits of their blocks."""
    found: list[Any] = []
    for one in compat.await_chain(task.get_coro() if coroutine is None else coroutine):
        for held in gc.get_referents(one):
            group: Any = held.__self__ if type(held) is MethodType else held
            if issubclass(type(group), compat.TASK_GROUP) and group._parent_task is task:  # noqa: SLF001
                found.append(group)
    return found


def awaiters(task: Task, *, through_shields: bool = False) -> list[Task]:
    """The tasks that await ``task`` by a known form. Their timeouts are its own, except through a shield."""
    found: list[Task] = []
    for callback, _ in compat.callbacks_of(task):
        if not through_shields and is_of_shield(callback):
            continue
        for thing in _objects_bound_to(callback):
            if compat.is_task(thing):
                found.append(thing)
            elif issubclass(type(thing), asyncio.Future):
                woken = compat.callbacks_of(thing)
                found += [owner for wake, _ in woken for owner in compat.bound_to(wake) if compat.is_task(owner)]
            elif issubclass(type(thing), compat.TASK_GROUP) and not compat.serves_alone(task):
                found.append(thing._parent_task)  # noqa: SLF001
    return [one for one in dict.fromkeys(found) if one is not task and (not _is_inside_grpc(one) or _sends_requests(one))]


def _sends_requests(task: Task) -> bool:
    """Whether a task of ``grpc.aio`` asks the application's iterator for the requests of a call."""
    return getattr(compat.coroutine_of(task), "__name__", "") == "_consume_request_iterator"


def timers(loop: asyncio.AbstractEventLoop) -> dict[int, float] | None:
    """The loop time of the first timer that refers to a task, by task ``id``; None if unknown."""
    scheduled = compat.timers_of(loop)
    if scheduled is None:
        return None
    found: dict[int, float] = {}
    for handle in scheduled:
        for task in _tasks_of_timer(handle):
            found[id(task)] = min(handle.when(), found.get(id(task), handle.when()))
    return found


def is_timed(task: Task, timed: frozenset[int]) -> bool:
    """Whether a timer wakes ``task``, or the future that suspends it. ``timed``: as by :func:`woken_by_timers`."""
    return not timed.isdisjoint((id(task), id(blocking_future(task))))


def woken_by_timers(loop: asyncio.AbstractEventLoop) -> frozenset[int]:
    """The ``id`` of every task and future that a timer of ``loop`` wakes or cancels; empty if unknown."""
    found: set[int] = set()
    for handle in compat.timers_of(loop) or ():
        callback, arguments = compat.callback_of(handle)
        known = (*_objects_bound_to(callback), *arguments)
        found.update(id(thing) for thing in known if issubclass(type(thing), asyncio.Future))
        found.update(map(id, _tasks_of_timer(handle)))
    return frozenset(found)


def _tasks_of_timer(handle: Any) -> list[Task]:
    found: list[Task] = []
    for thing in (*_objects_bound_to(handle._callback), *(handle._args or ())):  # noqa: SLF001 - no public access
        if compat.is_task(thing):
            found.append(thing)
        else:
            found += _tasks_in(thing)
    return found


def _objects_bound_to(callback: Any) -> list[Any]:
    """The objects that a callback carries: its instance, its arguments and its closure."""
    if type(callback) is functools.partial:
        return [*callback.args, *compat.bound_to(callback.func)]
    return list(compat.bound_to(callback))


def _slots_of(thing: Any) -> dict[str, Any]:
    """The task in an object with slots, such as those of ``async_timeout``."""
    slot = next((kind.__dict__["_task"] for kind in type(thing).__mro__ if "_task" in kind.__dict__), None)
    return {"_task": slot.__get__(thing)} if type(slot) is MemberDescriptorType else {}


def _tasks_in(thing: Any) -> list[Task]:
    """The tasks of a timeout object, ours or another library's."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        attributes = _slots_of(thing)
    if not isinstance(attributes, dict):
        return []
    found = [attributes[name] for name in ("_task", "_host_task") if isinstance(attributes.get(name), asyncio.Task)]
    several = attributes.get("_tasks")
    if isinstance(several, set):
        found += [task for task in list(several) if isinstance(task, asyncio.Task)]
    return found
