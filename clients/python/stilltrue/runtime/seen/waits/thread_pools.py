"""Waits for what a ``multiprocessing.pool.ThreadPool`` has in its queue, or runs.

Rules:

1. A result comes only after the threads that run its items have ended them; that of ``map`` waits for all of its parts.
2. If none is under way, and all threads of the pool run items, what is in the queue begins after one of these has ended.
3. To terminate the pool wakes nobody up. Who sets a result himself, or gives the pool more threads, does it by names that are
   nobody else's.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.seen.wait import CallStack, Resolver, Scene, SeenWait

_MODULE = "multiprocessing.pool"
"""Not imported here: it brings 1.3 MB along, and whoever waits in it has imported it."""
_OUTERMOST_MAX = 8
_ITEMS_MAX = 10_000
_PARTS = 5
_BY = frozenset({"_set", "_event", "_processes", "_repopulate_pool", "_inqueue", "_pool"})


def _read(stack: CallStack, at: int, scene: Scene) -> SeenWait | None:
    """A thread that waits for a result without a timeout."""
    pools = sys.modules.get(_MODULE)
    names = variables_of(stack.frames[at])
    result = names.get("self")
    job, pool = attribute_of(result, "_job"), attribute_of(result, "_pool")
    if (
        pools is None
        or stack.task is not None
        or names.get("timeout", 0) is not None
        or type(job) is not int
        or not issubclass(type(pool), pools.Pool)
    ):
        return None
    queue, size = attribute_of(pool, "_inqueue"), attribute_of(pool, "_processes")
    running = scene.once(__name__, lambda: list(_running(scene.stacks().values(), pools.worker.__code__)))
    at_work = {ident: item for ident, of, item in running if of is queue and item is not None}
    for_it = tuple(ident for ident, item in at_work.items() if item == job)
    if for_it:
        return SeenWait(on=result, enders=for_it, needs=None, what="what {} runs for it", undone=(result,), by=_BY)
    if len(at_work) != size or sum(of is queue for _, of, _ in running) != size or job not in _queued_in(queue):
        return None
    what = "an item of a pool, all of whose threads are busy: {}"
    return SeenWait(on=result, enders=tuple(at_work), what=what, undone=(result, pool), by=_BY)


def _running(stacks: Iterable[CallStack], worker: CodeType) -> Iterator[tuple[int, Any, int | None]]:
    """The threads that run ``worker``: each with its pool's queue and the number of what it runs, if it runs anything."""
    for stack in stacks:
        frame = next((one for one in stack.frames[-_OUTERMOST_MAX:] if one.f_code is worker), None)
        if frame is not None:
            names = variables_of(frame)
            yield stack.ident, names.get("inqueue"), _job_of(names.get("task"))


def _job_of(item: Any) -> int | None:
    return item[0] if type(item) is tuple and len(item) == _PARTS and type(item[0]) is int else None


def _queued_in(queue: Any) -> set[int | None]:
    """The numbers of what is in a ``SimpleQueue``, which shows its items to the collector alone."""
    held = gc.get_referents(queue)
    return {_job_of(one) for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,))}


RESOLVERS = (Resolver((("multiprocessing/pool.py", "ApplyResult.wait"),), _read),)
