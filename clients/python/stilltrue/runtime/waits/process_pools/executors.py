"""Waits for items of a ``concurrent.futures.ProcessPoolExecutor``, and for its shutdown.

Rules:

1. The executor's manager thread completes the futures: it reads the results, and hands the items to the workers in the order of
   their numbers. While it is elsewhere than at its wait for results (in a future's callback), all items wait for it.
2. An item that the call queue's thread has yet to send waits for that thread, which may be blocked while it pickles.
3. At most as many items run as there are workers, and they begin in order. So of the items handed out, the first ones run, one
   for each worker: their results come from the workers that run them (:mod:`~stilltrue.runtime.waits.process_pools.workers`).
   A later item begins after a worker's turn, if the executor has all the workers that it may have.
4. The end of a worker ends all waits. A party of this process that can reach the executor or its workers and mentions ending
   them, or whose code sends signals, is a way out; so is one that sets a future, or uses the executor's private names. A
   worker may end itself: if the program's own files call ``os._exit()`` and the like, nothing is known about pools with other
   workers.
5. Without any worker (an error of ``max_tasks_per_child``, python/cpython 115634), what is queued waits for a worker that has
   ended, until a party submits another item, which starts one. The manager thread has none either while it replaces one: so at
   the cut and at the second look it must be at its wait for results.
6. A worker that is stuck (:mod:`~stilltrue.runtime.waits.stuck_children`) never sends the result of its item. If all workers
   are, and there may be no more, no item ends; otherwise none that is left ends once nothing is queued and the other workers
   wait for items.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.executor_operations import CANCELS_ITEMS
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.ending_operations import COMPLETING
from stilltrue.runtime.waits.pipes.kernel import is_blocked, other_end_at
from stilltrue.runtime.waits.pipes.known_stuck import are_known_stuck, ask_for_stuck, is_known_stuck
from stilltrue.runtime.waits.process_pools.names import EXECUTORS, name_of_item, name_of_turn
from stilltrue.runtime.waits.process_pools.pools import stuck_worker, waits_for_task
from stilltrue.runtime.waits.resolvers.executors import cancels_queued
from stilltrue.runtime.waits.resolvers.processes import ENDING, ENDING_ANYWHERE
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, Ender, ProcessView, Resolver, SeenWait

ITEMS_MAX = 10_000
_GROWING = frozenset({"_max_workers", "_adjust_process_count", "_spawn_process", "_launch_processes", "_processes"})
_SUBMITTING = frozenset({"submit", "map", "run_in_executor"})
_CRASHES = r"\.\s*(?:kill|killpg|pthread_kill|raise_signal)\s*\(|\b(?:_exit|abort)\b"
_AT_RESULTS = "_ExecutorManagerThread.wait_result_broken_or_wakeup"


class _Crashes:
    """What is known of the program's own calls that end a process (rule 4)."""

    mentions = Mentions(_CRASHES, own_only=True)
    none = False
    """Whether the whole program has been searched, and none was found."""


@dataclass(slots=True, eq=False)
class _Pool:
    """An executor's manager thread, and the futures of its items by number."""

    manager: threading.Thread
    items: dict[int, Any]

    @property
    def executor(self) -> Any:
        """The executor; None if it is gone."""
        reference = attribute_of(self.manager, "executor_reference")
        return reference() if callable(reference) else None

    @property
    def processes(self) -> dict[int, Any]:
        """The workers by process id."""
        found = attribute_of(self.manager, "processes")
        return dict(items_of(found)) if type(found) is dict else {}

    @property
    def calls(self) -> Any:
        """The queue of the items that are handed to the workers."""
        return attribute_of(self.manager, "call_queue")


def search_for_crashes() -> None:
    """Search the program for what ends a worker (rule 4): not done at a cut."""
    if EXECUTORS in sys.modules and any(map(_is_manager, compat.threads().values())):
        _Crashes.none = _Crashes.mentions.search() and not _Crashes.mentions.found


def _is_manager(thread: Any) -> bool:
    return type(thread).__name__ == "_ExecutorManagerThread" and type(thread).__module__ == EXECUTORS


def _pools(view: ProcessView) -> dict[int, tuple[_Pool, int]]:
    """By ``id`` of each pending item's future: its pool and its number."""
    return view.cached(__name__, lambda: {id(one): (pool, number) for pool in _find() for number, one in pool.items.items()})


def _find() -> Iterator[_Pool]:
    for thread in compat.threads().values() if EXECUTORS in sys.modules else ():
        if _is_manager(thread):
            pool = _of_manager(thread)
            if pool is not None:
                yield pool


def _of_manager(thread: threading.Thread) -> _Pool | None:
    pending = attribute_of(thread, "pending_work_items")
    if type(pending) is not dict or len(pending) > ITEMS_MAX:
        return None
    return _Pool(thread, {number: attribute_of(item, "future") for number, item in items_of(pending)})


def _read_thread(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """A thread that waits for the result of an item, or for the end of the manager (in ``shutdown()``)."""
    awaited = None if stack.task is not None or EXECUTORS not in sys.modules else compat.awaited_at(stack.frames[0])
    if awaited is None:
        return None
    on, things, needs_all = awaited
    if len(things) > 1 and not needs_all:
        return None
    if len(things) == 1 and _is_manager(things[0]):
        pool = _of_manager(things[0])
        return None if pool is None or not pool.items else _of_items(on, pool, list(pool.items), view)
    known = _pools(view)
    of = [known.get(id(one)) for one in things]
    first = of[0]
    if first is None or any(one is None or one[0] is not first[0] for one in of):
        return None
    return _of_items(on, first[0], [one[1] for one in of if one is not None], view)


def _read_task(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """A task that awaits an item (``run_in_executor``)."""
    source = None if stack.future is None or EXECUTORS not in sys.modules else compat.source_of(stack.future)
    known = None if source is None or compat.is_task(source) else _pools(view).get(id(source))
    return None if known is None else _of_items(stack.future, known[0], [known[1]], view)


def _of_items(on: Any, pool: _Pool, numbers: Sequence[int], view: ProcessView) -> SeenWait | None:
    """The wait for all of these items."""
    through = tuple(one for one in (pool.executor, pool.manager, *pool.processes.values()) if one is not None)
    futures = tuple(pool.items[number] for number in numbers)
    names = ENDING | COMPLETING | _GROWING | {CANCELS_ITEMS}
    handles = tuple(one for one in futures if isinstance(one, Future) and not compat.is_running_future(one))
    stuck = _stuck_workers_with_all(pool, view)
    enders, needs, what = _of_stuck(stuck) if stuck else _enders(pool, numbers, view)
    if handles and cancels_queued(view):
        handles = (*handles, *through[:1])
    still = None
    if stuck:
        still = partial(are_known_stuck, stuck)
    elif enders is not None and any(isinstance(one, EndedHolder) for one in enders):
        names |= _SUBMITTING
        still = partial(_has_no_workers, OwnRef(pool.manager))
    return SeenWait(
        on=on,
        enders=enders,
        needs=needs,
        what=what,
        handles=handles,
        ended_through=(*futures, *through),
        ending_names=names,
        ending_names_anywhere=ENDING_ANYWHERE,
        once=True,
        still=still,
    )


def _stuck_workers_with_all(pool: _Pool, view: ProcessView) -> tuple[int, ...]:
    """The process ids of the workers that are stuck, if whatever is left is with them (rule 6); else nothing.

    The order of the reads matters: a result that another worker has sent before it was seen at its wait has been passed on.
    """
    ask_for_stuck()
    processes = pool.processes
    stuck = tuple(pid for pid in processes if is_known_stuck(pid))
    if not stuck or not (len(stuck) == attribute_of(pool.executor, "_max_workers") or _is_all_taken(pool, stuck, view)):
        return ()
    return stuck if _has_passed_on_all(pool.manager) else ()


def _has_passed_on_all(manager: threading.Thread) -> bool:
    """Whether there is no result, and the manager waits for one."""
    if manager.ident is None or not _is_empty(attribute_of(manager, "result_queue")):
        return False
    names = [qualname_of(one.f_code) for one in frames_of_thread(manager.ident)]
    return ("wait", _AT_RESULTS) in pairwise(names)


def _of_stuck(pids: Sequence[int]) -> _Ending:
    """:class:`~stilltrue.runtime.waits.stuck_children.StuckChildren` reports who holds the turn of a stuck worker."""
    return _targets([name_of_turn(pids[0])]), 1, f"an item that {stuck_worker(pids)}, never finishes"


def _is_empty(queue: Any) -> bool:
    """Whether the pipe of a queue is empty."""
    descriptor = attribute_of(attribute_of(queue, "_reader"), "_handle")
    return type(descriptor) is int and is_blocked(descriptor, "read")


def _is_all_taken(pool: _Pool, stuck: Container[int], view: ProcessView) -> bool:
    """Whether no item is queued, and the workers that are not stuck wait for one."""
    others = [pid for pid in pool.processes if pid not in stuck]
    return (_Crashes.none or not others) and _has_sent_all(pool, view) and _wait_for_items(others, pool.calls)


def _has_sent_all(pool: _Pool, view: ProcessView) -> bool:
    """Whether all items are handed out, and sent."""
    queued, buffer = attribute_of(pool.manager, "work_ids_queue"), attribute_of(pool.calls, "_buffer")
    sender = _sender(pool.calls, view)
    waits = sender is not None and qualname_of(sender.frames[0].f_code) == "Condition.wait"
    return waits and queued is not None and bool(queued.empty()) and buffer is not None and not buffer


def _wait_for_items(pids: Iterable[int], calls: Any) -> bool:
    """Whether these workers wait for an item, and none is on its way to them."""
    descriptor = attribute_of(attribute_of(calls, "_reader"), "_handle")
    pipe = other_end_at(descriptor) if type(descriptor) is int and _is_empty(calls) else None
    lock = attribute_of(attribute_of(calls, "_rlock"), "_semlock")
    return pipe is not None and all(waits_for_task(pid, pipe, lock) for pid in pids) and _is_empty(calls)


_Ending = tuple[tuple[Ender | ResourceTarget, ...] | None, int | None, str]
"""Who ends a wait (None: unknown), how many of them must (None: all), and what is waited for, as text."""
_UNKNOWN: _Ending = (None, 1, "")


def _enders(pool: _Pool, numbers: Sequence[int], view: ProcessView) -> _Ending:
    """Who ends the wait for these items."""
    manager, ident = view.stacks().get(pool.manager.ident or 0), pool.manager.ident
    if manager is None or ident is None:
        return _UNKNOWN
    if not _is_at_results(manager.frames):
        return (ident,), 1, "the results of a pool of processes, which {} passes on"
    sender = _sender(pool.calls, view)
    if sender is not None and not _unsent(pool.calls, sender).isdisjoint(numbers):
        return (sender.ident,), 1, "an item that {} sends to a pool of processes"
    if not pool.processes:
        if not _has_no_workers(OwnRef(pool.manager)):
            return _UNKNOWN
        return (EndedHolder("the last worker of a pool of processes"),), 1, "an item that {} did not take"
    return _in_workers(pool, numbers)


def _is_at_results(frames: Iterable[FrameType]) -> bool:
    return any(qualname_of(one.f_code) == _AT_RESULTS for one in frames)


def _has_no_workers(manager: OwnRef) -> bool:
    """Whether a manager thread has no worker, and does not start one (rule 5)."""
    thread: Any = manager()
    processes = attribute_of(thread, "processes")
    if type(processes) is not dict or processes or not _is_at_results(frames_of_thread(thread.ident)):
        return False
    return not processes  # it may have replaced its only worker in between


def _in_workers(pool: _Pool, numbers: Sequence[int]) -> _Ending:
    """Rule 3: items that are sent."""
    processes = pool.processes
    if len(processes) > 1 and not _Crashes.none:
        return _UNKNOWN
    handed = _handed(pool)
    running = [number for number in numbers if number in handed[: len(processes)]]
    if running:
        results = attribute_of(attribute_of(pool.manager, "result_queue"), "_reader")
        return _targets([name_of_item(results, one) for one in running]), None, "{}, which a process runs"
    if len(processes) != attribute_of(pool.executor, "_max_workers"):
        return _UNKNOWN
    return _targets([name_of_turn(pid) for pid in processes]), 1, "a queued item of a pool of processes: {}"


def _targets(names: Sequence[str | None]) -> tuple[ResourceTarget, ...] | None:
    return None if None in names else tuple(ResourceTarget(resource=one) for one in names if one is not None)


def _handed(pool: _Pool) -> list[int]:
    """The numbers of the items that the manager has handed out, in order (rule 3)."""
    waiting = attribute_of(attribute_of(pool.manager, "work_ids_queue"), "queue")
    queued = set(waiting.copy()) if waiting is not None else set()
    return sorted(number for number in pool.items if number not in queued)


def _sender(calls: Any, view: ProcessView) -> CallStack | None:
    """The thread that sends the items of a call queue."""
    thread = attribute_of(calls, "_thread")
    return view.stacks().get(thread.ident or 0) if isinstance(thread, threading.Thread) else None


def _unsent(calls: Any, sender: CallStack) -> frozenset[int]:
    """The numbers of the items that are not sent yet: what it pickles, and what is behind."""
    frame = next((one for one in sender.frames if qualname_of(one.f_code) == "Queue._feed"), None)
    names = {} if frame is None else variables_of(frame)
    behind = attribute_of(calls, "_buffer")
    numbers = [attribute_of(one, "work_id") for one in (names.get("obj"), *(behind.copy() if behind is not None else ()))]
    return frozenset(one for one in numbers if type(one) is int)


RESOLVERS = (Resolver((), _read_thread), Resolver((), _read_task))
