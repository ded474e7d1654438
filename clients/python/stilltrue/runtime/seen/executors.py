"""Waits for what an executor has yet to begin: an item in its queue waits for one of its threads to end the item that it runs.

Rules:

1. It does so where the executor has all the threads it may have, and each of them runs an item. One that is idle, or could
   be started, takes the item.
2. An item in a queue can be cancelled by whoever holds its future: the second look searches for them. So can all items of a
   queue when an executor is shut down (``cancel_futures``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, thread
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.frames import variables_of
from stilltrue.runtime.seen.wait import Ender, Resolver, Scene, SeenWait, Stand

_WORKER = thread._worker.__code__  # noqa: SLF001 - what an executor's threads run
_ITEM = thread._WorkItem  # noqa: SLF001
_ITEMS_MAX = 10_000


def queued_items(stands: Iterable[Stand]) -> dict[int, tuple[Any, tuple[int, ...]]]:
    """By ``id`` of the future of each item that is queued: the future, and the threads of which one must end its item first."""
    queues: dict[int, tuple[Any, Any]] = {}
    workers: dict[int, list[int]] = {}
    idle: set[int] = set()
    for stand in stands:
        frame = next((one for one in stand.frames[-6:] if one.f_code is _WORKER), None)
        if frame is None:
            continue
        names = variables_of(frame)
        queue, reference = names.get("work_queue"), names.get("executor_reference")
        queues[id(queue)] = (queue, reference)
        workers.setdefault(id(queue), []).append(stand.ident)
        if compat.item_run_by(list(stand.frames)) is None:
            idle.add(id(queue))
    found: dict[int, tuple[Any, tuple[int, ...]]] = {}
    for key, (queue, reference) in queues.items():
        if key not in idle and _has_all(reference, len(workers[key])):
            found.update({id(future): (future, tuple(workers[key])) for future in _futures_in(queue)})
    return found


def _has_all(reference: Any, count: int) -> bool:
    """Whether an executor has no more threads than these ``count``, and will start none; one that is gone starts none."""
    executor = None if reference is None else reference()
    if executor is None:
        return True
    return bool(len(executor._threads) == count == executor._max_workers)  # noqa: SLF001 - it is told nowhere else


def _futures_in(queue: Any) -> list[Any]:
    """The futures of the items in a ``SimpleQueue``, which shows them to the collector alone."""
    held = gc.get_referents(queue)
    items = [one for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,))]
    return [one.future for one in items if type(one) is _ITEM and not compat.is_over(one.future)]


def behind(on: Any, things: Sequence[Any], queued: Sequence[tuple[int, ...]]) -> SeenWait:
    """A wait for one of some things, of which some are queued: each of these for one of its executor's threads."""
    enders: list[Ender] = [ender for thing, workers in zip(things, queued, strict=True) for ender in (workers or (thing,))]
    handles = tuple(one for one in things if isinstance(one, Future))
    what = "an item of an executor, all of whose threads are busy: {}"
    return SeenWait(on=on, enders=tuple(dict.fromkeys(enders)), what=what, handles=handles, once=True)


def _read_task(stand: Stand, _: int, scene: Scene) -> SeenWait | None:
    """A task that awaits an item (``run_in_executor``, ``to_thread``)."""
    source = None if stand.future is None else compat.source_of(stand.future)
    workers = () if source is None or compat.is_task(source) else scene.workers_before(source)
    return None if not workers else behind(stand.future, (source,), (workers,))


RESOLVERS = (Resolver((), _read_task),)
