"""What event loops run: their tasks and callbacks, the coroutines of these tasks, and what a coroutine can still reach.

Rules:

1. A task can reach what its suspended coroutines read again, if it waits for a future, or if its loop is blocked by another
   step. A running coroutine, and what a loop has scheduled, belong to the loop's thread; a running generator belongs to the
   thread that runs it. For any other task nothing is known.
2. A coroutine or generator shows its variables to the garbage collector, unless it runs and has called a compiled function:
   then only its frame shows them.
3. A task that has ended keeps its result, or its error with the frames of that. Before Python 3.12 the garbage collector does
   not show it as a referrer of these.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import CoroutineType, FrameType, GeneratorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.loops.stopped_loops import coroutines_of, tasks_of_stopped_loops

FINISHED_MAX = 1_000
"""Maximum number of tasks that have ended to read (rule 3)."""
_SHOWS_TASKS = (3, 12)
_SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR
_RUNS_ON_THREAD = (CoroutineType, GeneratorType)
_RUNNING = ("cr_running", "gi_running", "ag_running")


@dataclass(slots=True)
class LoopContents:
    """What the event loops of a process run, by identity."""

    scheduled: dict[int, tuple[Any, int]] = field(default_factory=dict)
    """Tasks and callbacks, each with its loop's thread."""
    futures: dict[int, OwnRef | None] = field(default_factory=dict)
    """What each of these tasks waited for; None: its loop is blocked. No reference of the search's own counts."""
    suspended: dict[int, int] = field(default_factory=dict)
    """Suspended coroutines, each with the identity of its task. Another may get its identity once the task has moved."""
    running: dict[int, int] = field(default_factory=dict)
    """Running coroutines and generators, each with its thread."""
    stopped: list[OwnRef] = field(default_factory=list)
    """The tasks of loops that no thread runs."""
    of_stopped: set[int] = field(default_factory=set)
    """The coroutines of these tasks."""
    finished: dict[int, list[OwnRef]] = field(default_factory=dict)
    """The tasks that have ended, by the identity of what they refer to, where Python does not show them (rule 3)."""
    hidden: set[int] = field(default_factory=set)
    """The frames of running coroutines and generators that only they themselves show (rule 2)."""

    def reacher(self, one: int) -> int | Task:
        """The task with this identity, or the thread that runs it, or the callback, next."""
        found, thread = self.scheduled[one]
        return thread if not compat.is_task(found) or compat.current_task_of(found.get_loop()) is found else found

    def has_moved(self, task: Task) -> bool:
        """Whether a task has run since, unless its loop is blocked."""
        known = self.futures[id(task)]
        return blocking_future(task) is not (None if known is None else known())

    def thread_of(self, task: Task) -> int | None:
        """The thread of a task whose loop is blocked; None for any other."""
        return self.scheduled[id(task)][1] if self.futures[id(task)] is None else None


def read_loops(frames: Mapping[int, Sequence[FrameType]], paused: Callable[[], Iterable[Any]]) -> LoopContents:
    """What the loops of threads with these frames run; ``paused`` returns all coroutines and generators of the process."""
    stopped = tasks_of_stopped_loops()
    found = LoopContents(stopped=[OwnRef(one) for one in stopped], of_stopped=set(coroutines_of(stopped)))
    del stopped
    if sys.version_info < _SHOWS_TASKS:
        found.finished = _finished_tasks()
    for ident, those in frames.items():
        loop = next((loop for one in those if (loop := compat.loop_in(one)) is not None), None)
        if loop is None:
            continue
        is_blocked = any(compat.is_loop_step(frame.f_code) for frame in those)
        found.scheduled.update((id(handle), (handle, ident)) for handle in compat.handles_of(loop) or ())
        for task in compat.tasks_of(loop) or ():
            future = blocking_future(task)
            if is_blocked or future is not None:
                found.scheduled[id(task)] = (task, ident)
                found.futures[id(task)] = None if future is None else OwnRef(future)
                chain = compat.await_chain(task.get_coro())
                found.suspended.update((id(one), id(task)) for one in chain if not is_running(one))
    _read_running(found, frames, paused)
    return found


def _finished_tasks() -> dict[int, list[OwnRef]]:
    by_referent: dict[int, list[OwnRef]] = {}
    for task in islice((one for one in compat.tasks_kept() if compat.is_finished_task(one)), FINISHED_MAX):
        weak = OwnRef(task)
        for held in gc.get_referents(task):
            if gc.is_tracked(held) and type(held) is not type:
                by_referent.setdefault(id(held), []).append(weak)
    return by_referent


def _read_running(found: LoopContents, frames: Mapping[int, Sequence[FrameType]], paused: Callable[[], Iterable[Any]]) -> None:
    threads = {id(one): ident for ident, those in frames.items() for one in those if one.f_code.co_flags & _SUSPENDABLE}
    for one in paused() if threads else ():
        frame = frame_of(one) if type(one) in _RUNS_ON_THREAD and is_running(one) else None
        if frame is None or id(frame) not in threads:
            continue
        found.running[id(one)] = threads[id(frame)]
        read = compat.frame_references(frame)
        if read is not None and not {held for _, held in read[1] if held} <= set(map(id, gc.get_referents(one))):
            found.hidden.add(id(frame))


def is_running(paused: Any) -> bool:
    """Whether a coroutine or generator is running at this moment."""
    return any(getattr(paused, name, False) for name in _RUNNING)


def reads_again(coroutine: Any, held: int, is_read: Callable[[FrameType, str], bool]) -> bool:
    """Whether a coroutine may read the object with this identity again; ``is_read``: whether a frame reads a variable again."""
    frame = frame_of(coroutine)
    read = None if frame is None else compat.frame_references(frame)
    if frame is None or read is None:
        return True
    names = [name for name, one in read[1] if one == held]
    in_use = sum(id(one) == held for one in gc.get_referents(coroutine)) - (held == read[0])  # its own function
    return in_use > len(names) or any(is_read(frame, name) for name in names)
