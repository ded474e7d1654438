"""Waits for items that a ``multiprocessing.pool.ThreadPool`` runs or has in its queue.

Rules:

1. A result comes only after the threads that run its items have finished them; a result of ``map`` waits for all its parts,
   the next item of ``imap`` for one part, and that of ``imap_unordered`` for any of those left.
2. If none of its items is running, and all threads of the pool run others, its queued items begin after one of these ends. If
   any part will do, and one is queued, each of the pool's threads may end the wait.
3. Terminating the pool does not wake waiters. A party that sets a result itself, or gives the pool more threads, must mention
   one of the pool's private names.
4. The pool's thread for results completes them all. While it is in a callback, a result whose items no thread runs waits for
   it. Once it has ended, because a callback failed or the pool was terminated, no result comes any more.
5. ``close()`` and ``join()`` wait until the pool has no job left, so until all items that it runs have ended. Who has the pool
   may terminate it, which ends that wait.
"""

from __future__ import annotations

import gc
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, ProcessView, Resolver, SeenWait

MODULE = "multiprocessing.pool"
"""Not imported here: it costs 1.3 MB, and a program that waits in it has imported it."""
PLACES = (("multiprocessing/pool.py", "ApplyResult.wait"), ("multiprocessing/pool.py", "IMapIterator.next"))
COMPLETING = frozenset({"_set", "_event", "_cache", "_cond", "_items"})
"""What code mentions that completes a result, or an item of ``imap``, itself.

Not ``_set_length``: the pool's thread for tasks keeps this method after it has called it.
"""
_OUTERMOST_MAX = 8
_ITEMS_MAX = 10_000
_PARTS = 5
_BY = COMPLETING | {"_processes", "_repopulate_pool", "_inqueue", "_pool"}
_TERMINATING = frozenset({"terminate", "_terminate", "_state", "__exit__", "_worker_handler", *COMPLETING})
_OWN_THREADS = ("_worker_handler", "_task_handler", "_result_handler")
_PASSES_ON = frozenset({"ApplyResult._set", "MapResult._set"})
_PASSED_ON = "the results of a pool, which {} passes on"
_Item = tuple[int, int]
"""The numbers of a job and of its part."""


def awaited_result(stack: CallStack, at: int) -> tuple[Any, int, Any] | None:
    """The result for which a thread waits without a timeout, its job's number and its pool, of threads or processes."""
    module = sys.modules.get(MODULE)
    names = variables_of(stack.frames[at])
    result = names.get("self")
    job, pool = attribute_of(result, "_job"), attribute_of(result, "_pool")
    if module is None or stack.task is not None or names.get("timeout", 0) is not None or type(job) is not int:
        return None
    if is_iterator(result) and (at == 0 or stack.frames[at - 1].f_code is not threading.Condition.wait.__code__):
        return None
    return (result, job, pool) if issubclass(type(pool), module.Pool) else None


def is_iterator(result: Any) -> bool:
    """Whether it is what ``imap`` and ``imap_unordered`` return."""
    return issubclass(type(result), sys.modules[MODULE].IMapIterator)


def is_unordered(result: Any) -> bool:
    """Whether it is what ``imap_unordered`` returns."""
    return issubclass(type(result), sys.modules[MODULE].IMapUnorderedIterator)


def _has_known_length(result: Any) -> bool:
    """Whether no other thread of the pool may complete it: the one for tasks tells ``imap`` how many items there are."""
    return not is_iterator(result) or type(attribute_of(result, "_length")) is int


def has_ended(thread: Any) -> bool:
    """Whether this is a thread that has run and ended; another one may have its identity by now."""
    started = issubclass(type(thread), threading.Thread) and thread.ident is not None
    return started and compat.threads().get(thread.ident) is not thread


def wait_for_ended_thread(result: Any, pool: Any, same: Callable[[], bool] | None = None) -> SeenWait | None:
    """Rule 4: the wait for a result that the pool's thread for results would complete, if that has ended."""
    thread = attribute_of(pool, "_result_handler")
    if not has_ended(thread) or not _has_known_length(result):
        return None

    def still() -> bool:
        return has_ended(thread) and (same is None or same())

    return SeenWait(
        on=result,
        enders=(EndedHolder("the pool's thread for results"),),
        what="a result that {} never passed on",
        ended_through=(result,),
        ending_names=COMPLETING,
        same=None if same is None else still,
        still=still,
    )


def wait_for_callback(result: Any, passes_on: CallStack, **of_wait: Any) -> SeenWait | None:
    """Rule 4: the wait for the pool's thread for results, if that is in a callback."""
    if not _has_known_length(result) or not any(qualname_of(one.f_code) in _PASSES_ON for one in passes_on.frames):
        return None
    through, ident = (result,), passes_on.ident
    return SeenWait(on=result, enders=(ident,), what=_PASSED_ON, ended_through=through, ending_names=_BY, **of_wait)


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A thread that waits for a result without a timeout."""
    found = awaited_result(stack, at)
    tasks = None if found is None else attribute_of(found[2], "_inqueue")
    if found is None or not issubclass(type(tasks), queue.SimpleQueue):
        return None
    result, job, pool = found
    lost = wait_for_ended_thread(result, pool)
    if lost is not None:
        return lost
    pools = sys.modules[MODULE]
    running = view.cached(__name__, lambda: list(_running(view.stacks().values(), pools.worker.__code__)))
    at_work = {ident: item for ident, of, item in running if of is tasks and item is not None}
    queued = [one for one in _queued_in(tasks) if one[0] == job]
    for_it = tuple(ident for ident, item in at_work.items() if _is_awaited(item, result, job))
    if is_unordered(result) and (queued or not _are_all_left(result, len(for_it))):
        for_it = ()
    if for_it:
        return SeenWait(
            on=result,
            enders=for_it,
            needs=1 if is_iterator(result) else None,
            what="a pool's item run by {}",
            ended_through=(result,),
            ending_names=_BY,
        )
    size = attribute_of(pool, "_processes")
    busy = len(at_work) == size and sum(of is tasks for _, of, _ in running) == size
    if busy and _is_queued(queued, result, sum(item[0] == job for item in at_work.values())):
        return SeenWait(
            on=result,
            enders=tuple(at_work),
            what="a queued item of a pool whose threads are all busy: {}",
            ended_through=(result, pool),
            ending_names=_BY,
        )
    passes_on = view.stacks().get(getattr(attribute_of(pool, "_result_handler"), "ident", None) or 0)
    if passes_on is None or any(item[0] == job for item in at_work.values()):
        return None
    return wait_for_callback(result, passes_on)


def _is_awaited(item: _Item, result: Any, job: int) -> bool:
    """Whether a wait for this result, of this job, may be one for the end of this item."""
    if item[0] != job or not is_iterator(result) or is_unordered(result):
        return item[0] == job
    return bool(item[1] == attribute_of(result, "_index"))


def _are_all_left(result: Any, count: int) -> bool:
    """Whether so many parts are left of what ``imap_unordered`` has returned: none is on its way."""
    done, length = attribute_of(result, "_index"), attribute_of(result, "_length")
    return type(done) is int and type(length) is int and done + count == length


def _is_queued(queued: list[_Item], result: Any, at_work: int) -> bool:
    """Whether what a wait for this result needs is in the pool's queue; ``at_work``: how many of its items are running."""
    if not is_iterator(result):
        return bool(queued)
    if is_unordered(result):
        return bool(queued) and _are_all_left(result, at_work + len(queued))
    return any(item[1] == attribute_of(result, "_index") for item in queued)


def _running(stacks: Iterable[CallStack], worker: CodeType) -> Iterator[tuple[int, Any, _Item | None]]:
    """The threads that run ``worker``, each with its pool's queue and the item that it runs, if any."""
    for stack in stacks:
        frame = next((one for one in stack.frames[-_OUTERMOST_MAX:] if one.f_code is worker), None)
        if frame is not None:
            names = variables_of(frame)
            yield stack.ident, names.get("inqueue"), item_of(names.get("task"))


def item_of(task: Any) -> _Item | None:
    """The numbers of the job and of its part that a worker of ``multiprocessing.pool`` runs."""
    if type(task) is not tuple or len(task) != _PARTS or type(task[0]) is not int:
        return None
    return (task[0], task[1]) if type(task[1]) is int else None


def _queued_in(tasks: Any) -> list[_Item]:
    """The items in a ``SimpleQueue``, which only the garbage collector can list."""
    held = gc.get_referents(tasks)
    every = (item_of(one) for part in held for one in (part[:_ITEMS_MAX] if type(part) is list else (part,)))
    return [one for one in every if one is not None]


def _read_join(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 5."""
    module = sys.modules.get(MODULE)
    pool = variables_of(stack.frames[at]).get("self")
    keeper, tasks, jobs = (attribute_of(pool, name) for name in ("_worker_handler", "_inqueue", "_cache"))
    joined = variables_of(stack.frames[at - 1]).get("self") if at else None
    if module is None or stack.task is not None or joined is not keeper or not issubclass(type(jobs), dict):
        return None
    if not issubclass(type(tasks), queue.SimpleQueue):
        return None
    running = view.cached(__name__, lambda: list(_running(view.stacks().values(), module.worker.__code__)))
    at_work = tuple(
        ident for ident, of, item in running if of is tasks and item is not None and dict.__contains__(jobs, item[0])
    )
    what = "the end of a pool, which waits for the items run by {}"
    if not at_work:
        return None
    own = (getattr(attribute_of(pool, name), "ident", None) for name in _OWN_THREADS)
    idle = [ident for ident in own if ident is not None and not _runs_application(view.stacks().get(ident))]
    return SeenWait(
        on=keeper,
        enders=at_work,
        needs=None,
        what=what,
        handles=(pool,),
        helpers=tuple(idle),
        ended_through=(pool,),
        ending_names=_TERMINATING,
    )


def _runs_application(stack: CallStack | None) -> bool:
    """Whether one of the pool's own threads is in a callback of the application's."""
    return stack is None or any(is_application(frame.f_code) for frame in stack.frames)


RESOLVERS = (Resolver(PLACES, _read), Resolver((("multiprocessing/pool.py", "Pool.join"),), _read_join))
