"""Waits for items that a ``multiprocessing.pool.ThreadPool`` runs or has in its queue.

Rules:

1. A result comes only after the threads that run its items have finished them; a result of ``map`` waits for all its parts.
2. If none of its items is running, and all threads of the pool run others, its queued items begin after one of these ends.
3. Terminating the pool does not wake waiters. A party that sets a result itself, or gives the pool more threads, must mention
   one of the pool's private names.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

MODULE = "multiprocessing.pool"
"""Not imported here: it costs 1.3 MB, and a program that waits in it has imported it."""
_OUTERMOST_MAX = 8
_ITEMS_MAX = 10_000
_PARTS = 5
_BY = frozenset({"_set", "_event", "_processes", "_repopulate_pool", "_inqueue", "_pool"})


def awaited_result(stack: CallStack, at: int) -> tuple[Any, int, Any] | None:
    """The result for which a thread waits without a timeout, its job's number and its pool, of threads or processes."""
    module = sys.modules.get(MODULE)
    names = variables_of(stack.frames[at])
    result = names.get("self")
    job, pool = attribute_of(result, "_job"), attribute_of(result, "_pool")
    if module is None or stack.task is not None or names.get("timeout", 0) is not None or type(job) is not int:
        return None
    return (result, job, pool) if issubclass(type(pool), module.Pool) else None


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A thread that waits for a result without a timeout."""
    found = awaited_result(stack, at)
    if found is None:
        return None
    result, job, pool = found
    pools = sys.modules[MODULE]
    queue, size = attribute_of(pool, "_inqueue"), attribute_of(pool, "_processes")
    running = view.cached(__name__, lambda: list(_running(view.stacks().values(), pools.worker.__code__)))
    at_work = {ident: item for ident, of, item in running if of is queue and item is not None}
    for_it = tuple(ident for ident, item in at_work.items() if item == job)
    if for_it:
        return SeenWait(
            on=result, enders=for_it, needs=None, what="a pool's item run by {}", ended_through=(result,), ending_names=_BY
        )
    if len(at_work) != size or sum(of is queue for _, of, _ in running) != size or job not in _queued_in(queue):
        return None
    what = "a queued item of a pool whose threads are all busy: {}"
    return SeenWait(on=result, enders=tuple(at_work), what=what, ended_through=(result, pool), ending_names=_BY)


def _running(stacks: Iterable[CallStack], worker: CodeType) -> Iterator[tuple[int, Any, int | None]]:
    """The threads that run ``worker``, each with its pool's queue and the number of the job that it runs, if any."""
    for stack in stacks:
        frame = next((one for one in stack.frames[-_OUTERMOST_MAX:] if one.f_code is worker), None)
        if frame is not None:
            names = variables_of(frame)
            yield stack.ident, names.get("inqueue"), _job_of(names.get("task"))


def _job_of(item: Any) -> int | None:
    return item[0] if type(item) is tuple and len(item) == _PARTS and type(item[0]) is int else None


def _queued_in(queue: Any) -> set[int | None]:
    """The job numbers in a ``SimpleQueue``, whose items only the garbage collector can list."""
    held = gc.get_referents(queue)
    return {_job_of(one) for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,))}


RESOLVERS = (Resolver((("multiprocessing/pool.py", "ApplyResult.wait"),), _read),)
