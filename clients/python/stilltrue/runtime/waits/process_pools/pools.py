"""Waits for results of a ``multiprocessing.Pool`` of processes.

Rules:

1. A result comes once the workers have finished all of its parts, each run by one worker; who waits, waits for all of them,
   or, for the next item of ``imap``, for one. If all workers are busy, a part that is queued begins after one worker's turn.
   Which parts of ``imap_unordered`` are left is not known, so a wait for one is unknown.
2. The pool's thread for results completes them. While it is elsewhere than at its wait for results (in a callback), all
   results wait for it. Once it has ended, because a callback failed or the pool was terminated, no result comes any more,
   unless the thread for tasks fails to send one.
3. The pool replaces a worker that has ended, but not what this worker was running: such a part is *lost*, and its result never
   comes. It is lost if it is nowhere: no task is left to be sent, both pipes are empty, the thread for results waits for more,
   and each worker of the pool waits for a task, which Linux shows (a worker needs no agent). The order of these reads matters:
   a part that a worker had finished before it was seen at its wait is in the pipe, or completed. What a stuck worker
   (:mod:`~stilltrue.runtime.waits.stuck_children`) was running is lost, too, if the other workers wait for a task, or if all
   are stuck: then no other part begins. Ending a stuck worker makes room for another one.
4. A party that sets a result itself must mention one of the private names. Ending the workers does not wake who waits, but then
   what they were running is lost, so it is a way out of a deadlock with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import ref

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes.kernel import is_blocked, is_in_call, other_end_at
from stilltrue.runtime.waits.pipes.known_stuck import are_known_stuck, ask_for_stuck, is_known_stuck
from stilltrue.runtime.waits.process_pools.names import name_of_item, name_of_turn
from stilltrue.runtime.waits.resolvers.processes import ENDING, ENDING_ANYWHERE
from stilltrue.runtime.waits.resolvers.thread_pools import (
    COMPLETING,
    PLACES,
    awaited_result,
    has_ended,
    is_iterator,
    is_unordered,
    wait_for_callback,
    wait_for_ended_thread,
)
from stilltrue.runtime.waits.semaphores.kernel import address_awaited, mapped_in
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, ProcessView, Resolver, SeenWait

WORKERS_MAX = 64
PARTS_MAX = 1_000
_READ = {"x86_64": 0, "aarch64": 63}
_PROC = Path("/proc")
_BY = COMPLETING | {"_processes", "_repopulate_pool", "_inqueue", "_outqueue", "_pool"}
_WAITS = frozenset(name for _, name in PLACES)
_LOST = "a part of its result, which {} never finished"


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A thread that waits for a result without a timeout."""
    found = awaited_result(stack, at)
    if found is None or type(attribute_of(_queue(found[2], "out"), "_handle")) is not int:
        return None
    result, job, pool = found
    same = _same(stack.ident, result)
    passes_on = _thread_for_results(pool, view)
    lost = wait_for_ended_thread(result, pool, same) if _has_sent_all(pool, view) else None
    if lost is not None or passes_on is None:
        return lost
    if is_iterator(result) and type(attribute_of(result, "_length")) is not int:
        return None
    if not _is_at(passes_on, pool):
        return wait_for_callback(result, passes_on, same=same)
    stuck = stuck_workers(pool)
    if is_lost(pool, passes_on, view, stuck):
        return _of_stuck(result, pool, stuck, same) if stuck else _of_lost(result, pool, same)
    return _of_parts(result, job, pool, same)


def stuck_workers(pool: Any) -> dict[int, Any]:
    """A pool's workers that are known to be stuck, by process id."""
    ask_for_stuck()
    workers = attribute_of(pool, "_pool")
    return {one.pid: one for one in workers.copy() if is_known_stuck(one.pid)} if type(workers) is list else {}


def _of_lost(result: Any, pool: Any, same: Callable[[], bool]) -> SeenWait:
    """Rule 3: a worker that has ended."""
    weak, of = ref(result), ref(pool)

    def still() -> bool:
        return same() and weak() is not None and of() is not None

    ended = EndedHolder("the worker that had it")
    return SeenWait(on=result, enders=(ended,), what=_LOST, ended_through=(result,), ending_names=_BY, same=still)


def _of_stuck(result: Any, pool: Any, stuck: Mapping[int, Any], same: Callable[[], bool]) -> SeenWait:
    """Rule 3: stuck workers. :class:`~stilltrue.runtime.waits.stuck_children.StuckChildren` reports who holds their turns."""
    pids = tuple(stuck)
    return SeenWait(
        on=result,
        enders=_targets([name_of_turn(pid) for pid in pids[:1]]),
        what=f"a part of its result, which {stuck_worker(pids)}, never finishes",
        ended_through=(result, pool, *stuck.values()),
        ending_names=_BY | ENDING,
        ending_names_anywhere=ENDING_ANYWHERE,
        same=lambda: same() and are_known_stuck(pids),
    )


def stuck_worker(pids: Sequence[int]) -> str:
    """The name of a stuck worker in a text."""
    return f"process {pids[0]}, its worker"


def _of_parts(result: Any, job: int, pool: Any, same: Any) -> SeenWait | None:
    """Rule 1."""
    size, length = attribute_of(result, "_chunksize"), attribute_of(result, "_value")
    number = -(-len(length) // size) if type(length) is list and type(size) is int and size > 0 else 1
    parts = [attribute_of(result, "_index")] if is_iterator(result) else range(number)
    workers = attribute_of(pool, "_pool")
    if len(parts) > PARTS_MAX or type(workers) is not list or is_unordered(result):
        return None
    reader = _queue(pool, "out")
    names = [name_of_item(reader, job, part) for part in parts]
    turns = [name_of_turn(one.pid) for one in workers.copy() if type(one.pid) is int]
    if None in names:
        return None
    what = "a part of its result, which another process works on"
    all_workers = len(turns) == attribute_of(pool, "_processes") and None not in turns
    through = (result, pool, *workers)
    return SeenWait(
        on=result,
        enders=_targets(names),
        needs=None,
        what=what,
        ended_through=through,
        ending_names=_BY | ENDING,
        ending_names_anywhere=ENDING_ANYWHERE,
        same=same,
        also=SeenWait(
            on=pool,
            enders=_targets(turns),
            what="a queued part of its result: all workers of the pool are busy",
            same=same,
        )
        if all_workers
        else None,
    )


def _targets(names: list[str | None]) -> tuple[ResourceTarget, ...]:
    return tuple(ResourceTarget(resource=one) for one in names if one is not None)


def _same(ident: int, result: Any) -> Any:
    """Whether a thread is still in the wait for this result, or item of ``imap``, which has not come."""
    weak, index = ref(result), attribute_of(result, "_index")

    def same() -> bool:
        now = weak()
        frames = frames_of_thread(ident)
        waits = any(qualname_of(one.f_code) in _WAITS and variables_of(one).get("self") is now for one in frames)
        return now is not None and waits and not _has_come(now, index)

    return same


def _has_come(result: Any, index: Any) -> bool:
    """``index``: how many items of ``imap`` had come."""
    if is_iterator(result):
        return attribute_of(result, "_index") != index or bool(attribute_of(result, "_items"))
    return attribute_of(attribute_of(result, "_event"), "_flag") is not False


def _queue(pool: Any, which: str) -> Any:
    """The reading end of the pool's pipe for tasks (``in``) or results (``out``)."""
    return attribute_of(attribute_of(pool, f"_{which}queue"), "_reader")


def _thread_for_results(pool: Any, view: ProcessView) -> CallStack | None:
    thread = attribute_of(pool, "_result_handler")
    return view.stacks().get(getattr(thread, "ident", None) or 0)


def _is_at(stack: CallStack, pool: Any) -> bool:
    """Whether the thread for results waits for one, and there is none."""
    thread = compat.threads().get(stack.ident)
    native = None if thread is None else thread.native_id
    descriptor: Any = attribute_of(_queue(pool, "out"), "_handle")
    if native is None or type(descriptor) is not int:
        return False
    return is_in_call(native, "read", descriptor) and is_blocked(descriptor, "read")


def is_lost(pool: Any, passes_on: CallStack, view: ProcessView, stuck: Container[int] = ()) -> bool:
    """Whether what has not come by now never will (rule 3). ``stuck``: the process ids of the workers that are stuck."""
    sends = view.stacks().get(getattr(attribute_of(pool, "_task_handler"), "ident", None) or 0)
    workers, tasks = attribute_of(pool, "_pool"), attribute_of(_queue(pool, "in"), "_handle")
    queue = attribute_of(pool, "_taskqueue")
    if sends is None or type(workers) is not list or type(tasks) is not int or not workers:
        return False
    if len(workers) != attribute_of(pool, "_processes") or len(workers) > WORKERS_MAX:
        return False
    if all(one.pid in stuck for one in workers.copy()):
        return _is_at(passes_on, pool)
    if not _sends_nothing(sends, queue) or not is_blocked(tasks, "read"):
        return False
    pipe, lock = other_end_at(tasks), attribute_of(attribute_of(attribute_of(pool, "_inqueue"), "_rlock"), "_semlock")
    if pipe is None or not all(one.pid in stuck or waits_for_task(one.pid, pipe, lock) for one in workers.copy()):
        return False
    return _sends_nothing(sends, queue) and is_blocked(tasks, "read") and _is_at(passes_on, pool)


def _has_sent_all(pool: Any, view: ProcessView) -> bool:
    """Whether the thread for tasks has none to send, or has ended."""
    thread = attribute_of(pool, "_task_handler")
    sends = view.stacks().get(getattr(thread, "ident", None) or 0)
    return has_ended(thread) or (sends is not None and _sends_nothing(sends, attribute_of(pool, "_taskqueue")))


def _sends_nothing(sends: CallStack, queue: Any) -> bool:
    """Whether the thread for tasks has none to send."""
    frame = sends.frames[0]
    names: Mapping[str, Any] = variables_of(frame)
    return qualname_of(frame.f_code) == "Pool._handle_tasks" and names.get("taskseq") is None and bool(queue.empty())


def waits_for_task(pid: int, pipe: str, lock: Any) -> bool:
    """Whether a worker waits at the pipe for tasks, or for the lock by which it would read there."""
    try:
        number, *arguments = (_PROC / str(pid) / "syscall").read_text().split()
        if int(number) == _READ.get(os.uname().machine):
            return str((_PROC / str(pid) / "fd" / str(int(arguments[0], 16))).readlink()) == pipe
        address = address_awaited(pid, pid)
        if address is None:
            return False
        own = next(key for key, (start, end) in mapped_in("self").items() if start <= lock.handle < end)
        start, end = mapped_in(str(pid)).get(own, (0, 0))
    except (OSError, ValueError, StopIteration):  # it has ended, it runs, or the system does not show it
        return False
    return start <= address < end


RESOLVERS = (Resolver(PLACES, _read),)
