"""Waits for what an executor has yet to begin: an item in its queue waits for one of its threads to end the item that it runs.

Rules:

1. It does so where the executor has all the threads it may have, and each of them runs an item. One that is idle, or could
   be started, takes the item.
2. An item in a queue can be cancelled by whoever holds its future: the second look searches for them. So can all items of a
   queue by whoever holds the executor and shuts it down: where some code of the application speaks of ``cancel_futures``.
   So is somebody who gives an executor more threads, or runs its items himself: by what nobody else may name.
3. Who gathers or shields several waits for those that others work on: threads and tasks. Who needs all of them waits for those
   that are under way; the queued ones begin only afterwards.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, thread
from dataclasses import replace
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import awaits_tasks, read
from stilltrue.runtime.seen.wait import CallStack, Ender, Queued, Resolver, Scene, SeenWait

_WORKER = thread._worker.__code__  # noqa: SLF001 - what an executor's threads run
_ITEM = thread._WorkItem  # noqa: SLF001
_OUTERMOST = 6
_ITEMS_MAX = 10_000
_CANCEL = "cancel_futures"
GROWING = frozenset({"_max_workers", "_adjust_thread_count", "_work_queue"})
"""By what names an executor is given more threads, or its items are run by others."""


def queued_items(stacks: Iterable[CallStack]) -> dict[int, Queued]:
    """By ``id`` of its future, each item that is queued, where all threads are busy (rule 1)."""
    queues: dict[int, tuple[Any, Any]] = {}
    workers: dict[int, list[int]] = {}
    idle: set[int] = set()
    for stack in stacks:
        frame = next((one for one in stack.frames[-_OUTERMOST:] if one.f_code is _WORKER), None)
        if frame is None:
            continue
        names = variables_of(frame)
        queue, reference = names.get("work_queue"), names.get("executor_reference")
        queues[id(queue)] = (queue, reference)
        workers.setdefault(id(queue), []).append(stack.ident)
        if compat.item_run_by(list(stack.frames)) is None:
            idle.add(id(queue))
    found: dict[int, Queued] = {}
    for key, (queue, reference) in queues.items():
        executor = None if reference is None else reference()
        if key not in idle and _has_all(executor, len(workers[key])):
            found.update({id(one): Queued(one, tuple(workers[key]), executor) for one in _futures_in(queue)})
    return found


def _has_all(executor: Any, count: int) -> bool:
    """Whether an executor has no more threads than these ``count``, and will start none; one that is gone starts none."""
    if executor is None:
        return True
    return bool(len(executor._threads) == count == executor._max_workers)  # noqa: SLF001 - it is told nowhere else


def _futures_in(queue: Any) -> list[Any]:
    """The futures of the items in a ``SimpleQueue``, which shows them to the collector alone."""
    return [one.future for one in _items_in(queue)]


def executor_of(frames: Sequence[FrameType]) -> Any:
    """The executor whose thread has these frames; None for any other thread, and for an executor that is gone."""
    frame = next((one for one in frames[-_OUTERMOST:] if one.f_code is _WORKER), None)
    reference = None if frame is None else variables_of(frame).get("executor_reference")
    return None if reference is None else reference()


def items_behind(frames: Iterable[FrameType]) -> list[Any]:
    """The items that are queued for the executor of a thread with these frames."""
    frame = next((one for one in frames if one.f_code is _WORKER), None)
    return [] if frame is None else _items_in(variables_of(frame).get("work_queue"))


def _items_in(queue: Any) -> list[Any]:
    held = gc.get_referents(queue)
    items = [one for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,))]
    return [one for one in items if type(one) is _ITEM and not compat.is_over(one.future)]


def behind(on: Any, things: Sequence[Any], scene: Scene) -> SeenWait | None:
    """A wait for one of some things, of which some are queued: each of these for one of its executor's threads.

    None if none of them is queued.
    """
    queued = [scene.queued(thing) for thing in things]
    if not any(queued):
        return None
    enders: list[Ender] = []
    for thing, item in zip(things, queued, strict=True):
        enders += (thing,) if item is None else item.workers
    handles = [one for one in things if isinstance(one, Future)]
    items = [item for item in queued if item is not None]
    handles += _cancellable(items, scene)
    what = "an item of an executor, all of whose threads are busy: {}"
    wait = SeenWait(on=on, enders=tuple(dict.fromkeys(enders)), what=what, handles=tuple(handles), once=True)
    return replace(wait, undone=_executors(items), by=GROWING)


def _read_task(stack: CallStack, _: int, scene: Scene) -> SeenWait | None:
    """A task that awaits an item (``run_in_executor``, ``to_thread``)."""
    source = None if stack.future is None else compat.source_of(stack.future)
    return None if source is None or compat.is_task(source) else behind(stack.future, (source,), scene)


def _read_several(stack: CallStack, _: int, scene: Scene) -> SeenWait | None:
    """Rule 3: a task that awaits several, of which some are no tasks."""
    if stack.task is None or not awaits_tasks(stack.future, stack.frames):
        return None
    awaited = read(stack.task, stack.future)
    if awaited is None or awaited.until is not None or all(map(compat.is_task, awaited.futures)):
        return None
    things = [one if compat.is_task(one) else compat.source_of(one) for one in awaited.futures]
    if any(one is None for one in things):
        return None  # somebody unknown completes it
    queued = {id(one): item for one in things if (item := scene.queued(one)) is not None}
    under_way = [one for one in things if id(one) not in queued]
    several = awaited.needs_all and bool(under_way)
    enders: list[Ender] = []
    for one in under_way if several else things[:1] if awaited.needs_all else things:
        enders += queued[id(one)].workers if id(one) in queued else (one,)
    what = "the end of {}" if several else "the end of one of {}"
    wait = SeenWait(on=stack.future, enders=tuple(dict.fromkeys(enders)), needs=None if several else 1, what=what, once=True)
    items = queued.values()
    handles = tuple(one for one in (*awaited.futures, *things) if not compat.is_task(one))
    return replace(wait, handles=(*handles, *_cancellable(items, scene)), undone=_executors(items), by=GROWING)


def _executors(queued: Iterable[Queued]) -> tuple[Any, ...]:
    return tuple(one.executor for one in queued if one.executor is not None)


def _cancellable(queued: Collection[Queued], scene: Scene) -> tuple[Any, ...]:
    """The executors that somebody may shut down so that what they have queued is cancelled."""
    return _executors(queued) if queued and _some_code_cancels_queues(scene) else ()


def _some_code_cancels_queues(scene: Scene) -> bool:
    """Whether a function of the application's modules, or one that runs, speaks of cancelling what an executor has queued."""
    stacks = (*scene.stacks().values(), *scene.stacks_of_tasks().values())
    codes = {frame.f_code for stack in stacks for frame in stack.frames if is_application(frame.f_code)}
    return any(map(_cancels_queues, codes)) or any(map(_cancels_queues, _codes_of_modules()))


def _codes_of_modules() -> Iterator[CodeType]:
    for _, names in compat.modules_of_application():
        for one in list(names.values()):
            functions = (one,) if type(one) is FunctionType else tuple(vars(one).values()) if type(one) is type else ()
            yield from (function.__code__ for function in functions if type(function) is FunctionType)


@functools.lru_cache(maxsize=10_000)
def _cancels_queues(code: CodeType) -> bool:
    return any(
        _cancels_queues(one) if isinstance(one, CodeType) else one == _CANCEL or (type(one) is tuple and _CANCEL in one)
        for one in code.co_consts
    )


RESOLVERS = (Resolver((), _read_task), Resolver((), _read_several))
