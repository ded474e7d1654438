"""Waits for a queued item of an executor: it begins once one of the executor's threads has finished its current item.

Rules:

1. This holds if the executor has as many threads as it may have, and each of them runs an item or the ``initializer``. An
   idle thread, or one that could be started, would take the item.
2. Any party that holds the future of a queued item can cancel it, so the second look searches for such parties. A party that
   can reach the executor can cancel all its queued items by shutting it down: its code then mentions ``cancel_futures``. If
   some code of the application does, so can any party that holds the executor. A party can also give the executor more threads
   or run its items itself: its code then mentions one of the executor's private names.
3. A task that gathers or shields several futures waits for the threads and tasks that work on them. If it needs all of them, it
   waits for those under way, as the queued ones begin only afterwards.
4. A fork leaves the executor's threads behind: the child's copy of the executor has their objects, but none of them runs. What
   is queued there, before the fork or after it, waits for threads that have ended, until a party submits another item: that may
   start one.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, thread
from dataclasses import replace
from itertools import pairwise
from types import CodeType, FrameType, FunctionType
from typing import Any
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import awaits_tasks, read
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.executor_operations import CANCELS_ITEMS, mentions_cancelling
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.resolvers.thread_pools import has_ended
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, Ender, ProcessView, Queued, Resolver, SeenWait

_WORKER = thread._worker.__code__  # noqa: SLF001 - what an executor's threads run
_ITEM = thread._WorkItem  # noqa: SLF001
_OUTERMOST = 6
_ITEMS_MAX = 10_000
GROWING = frozenset({"_max_workers", "_adjust_thread_count", "_work_queue"})
"""Names that code uses to give an executor more threads, or to run its items itself."""
_BY_NAME = GROWING | {CANCELS_ITEMS}
_BY_ANY = _BY_NAME | {"submit", "map", "run_in_executor", "to_thread"}


def queued_items(stacks: Iterable[CallStack]) -> dict[int, Queued]:
    """The queued items of executors whose threads are all busy, by ``id`` of the future (rule 1)."""
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
        if compat.running_item(list(stack.frames)) is None and not _initializes(stack.frames):
            idle.add(id(queue))
    found: dict[int, Queued] = {}
    for key, (queue, reference) in queues.items():
        executor = None if reference is None else reference()
        if key not in idle and _has_all(executor, len(workers[key])):
            found.update({id(one): Queued(one, tuple(workers[key]), executor) for one in _futures_in(queue)})
    return found | {id(one.future): one for one in _left_behind()}


def _left_behind() -> Iterator[Queued]:
    """Rule 4."""
    running = compat.threads()  # read once: there may be a thousand threads
    for reference in thread._threads_queues.data.copy():  # type: ignore[attr-defined]  # noqa: SLF001 - all threads of executors
        worker = reference()
        if worker is None or running.get(worker.ident) is worker:
            continue
        arguments = attribute_of(worker, "_args") if has_ended(worker) else ()  # a thread that ends by itself drops them
        executor = arguments[0]() if type(arguments) is tuple and arguments and type(arguments[0]) is ref else None
        if executor is not None and _has_no_threads(OwnRef(executor)):
            gone = (EndedHolder("the threads of its executor"),)
            yield from (Queued(one, gone, executor) for one in _futures_in(attribute_of(executor, "_work_queue")))


def _has_no_threads(executor: OwnRef) -> bool:
    """Whether none of an executor's threads runs."""
    threads = attribute_of(executor(), "_threads")
    return type(threads) is set and bool(threads) and all(map(has_ended, threads.copy()))


def _initializes(frames: Sequence[FrameType]) -> bool:
    """Whether an executor's thread is in the executor's ``initializer``, before its first item."""
    return any(outer.f_code is _WORKER and is_application(inner.f_code) for inner, outer in pairwise(frames))


def _has_all(executor: Any, count: int) -> bool:
    """Whether these ``count`` threads are all that an executor has or will start; one that is gone starts none."""
    if executor is None:
        return True
    return bool(len(executor._threads) == count == executor._max_workers)  # noqa: SLF001 - there is no public API


def _futures_in(queue: Any) -> list[Any]:
    """The futures of the items in a ``SimpleQueue``, which only the garbage collector can list."""
    return [one.future for one in _items_in(queue)]


def executor_of(frames: Sequence[FrameType]) -> Any:
    """The executor whose thread has these frames; None if it is gone or the thread is not an executor's."""
    frame = next((one for one in frames[-_OUTERMOST:] if one.f_code is _WORKER), None)
    reference = None if frame is None else variables_of(frame).get("executor_reference")
    return None if reference is None else reference()


def items_behind(frames: Iterable[FrameType]) -> list[Any]:
    """The queued items of the executor whose thread has these frames."""
    frame = next((one for one in frames if one.f_code is _WORKER), None)
    return [] if frame is None else _items_in(variables_of(frame).get("work_queue"))


def _items_in(queue: Any) -> list[Any]:
    held = gc.get_referents(queue)
    items = [one for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,))]
    return [one for one in items if type(one) is _ITEM and not compat.is_finished(one.future)]


def behind(on: Any, things: Sequence[Any], view: ProcessView) -> SeenWait | None:
    """A wait for one of ``things``, where each queued one waits for one of its executor's threads. None if none is queued."""
    queued = [view.queued(thing) for thing in things]
    if not any(queued):
        return None
    enders: list[Ender] = []
    for thing, item in zip(things, queued, strict=True):
        enders += (thing,) if item is None else item.workers
    handles = [one for one in things if isinstance(one, Future)]
    items = [item for item in queued if item is not None]
    handles += _cancellable(items, view)
    what = "a queued item of an executor whose threads are all busy: {}"
    wait = SeenWait(on=on, enders=tuple(dict.fromkeys(enders)), what=what, handles=tuple(handles), once=True)
    wait = replace(wait, ended_through=_executors(items), ending_names=_BY_NAME)
    left = [one.executor for one in items if isinstance(one.workers[0], EndedHolder)]
    if not left:
        return wait
    still = functools.partial(_have_no_threads, tuple(map(OwnRef, left)))
    return replace(wait, what="an item that {} never took: a fork left them behind", ending_names=_BY_ANY, still=still)


def _have_no_threads(executors: Iterable[OwnRef]) -> bool:
    return all(map(_has_no_threads, executors))


def _read_task(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """A task that awaits an item (``run_in_executor``, ``to_thread``)."""
    source = None if stack.future is None else compat.source_of(stack.future)
    return None if source is None or compat.is_task(source) else behind(stack.future, (source,), view)


def _read_several(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """Rule 3: a task that awaits several futures, of which some are not tasks."""
    if stack.task is None or not awaits_tasks(stack.future, stack.frames):
        return None
    awaited = read(stack.task, stack.future)
    if awaited is None or awaited.until is not None or all(map(compat.is_task, awaited.futures)):
        return None
    things = [one if compat.is_task(one) else compat.source_of(one) for one in awaited.futures]
    if any(one is None for one in things):
        return None  # an unknown party completes one
    queued = {id(one): item for one in things if (item := view.queued(one)) is not None}
    under_way = [one for one in things if id(one) not in queued]
    several = awaited.needs_all and bool(under_way)
    enders: list[Ender] = []
    for one in under_way if several else things[:1] if awaited.needs_all else things:
        enders += queued[id(one)].workers if id(one) in queued else (one,)
    what = "the end of {}" if several else "the end of one of {}"
    wait = SeenWait(on=stack.future, enders=tuple(dict.fromkeys(enders)), needs=None if several else 1, what=what, once=True)
    items = queued.values()
    handles = tuple(one for one in (*awaited.futures, *things) if not compat.is_task(one))
    return replace(wait, handles=(*handles, *_cancellable(items, view)), ended_through=_executors(items), ending_names=_BY_NAME)


def _executors(queued: Iterable[Queued]) -> tuple[Any, ...]:
    return tuple(one.executor for one in queued if one.executor is not None)


def _cancellable(queued: Collection[Queued], view: ProcessView) -> tuple[Any, ...]:
    """The executors whose queued items a party may cancel by shutting them down."""
    return _executors(queued) if queued and cancels_queued(view) else ()


def cancels_queued(view: ProcessView) -> bool:
    """Whether a function of the application's modules, or one that runs, mentions ``cancel_futures``."""
    stacks = (*view.stacks().values(), *view.stacks_of_tasks().values())
    codes = {frame.f_code for stack in stacks for frame in stack.frames if is_application(frame.f_code)}
    return any(map(mentions_cancelling, codes)) or any(map(mentions_cancelling, _codes_of_modules()))


def _codes_of_modules() -> Iterator[CodeType]:
    for _, names in compat.modules_of_application():
        for one in list(names.values()):
            functions = (one,) if type(one) is FunctionType else tuple(vars(one).values()) if type(one) is type else ()
            yield from (function.__code__ for function in functions if type(function) is FunctionType)


RESOLVERS = (Resolver((), _read_task), Resolver((), _read_several))
