"""Tasks whose turn has come, but whose event loop sleeps: another thread has woken them, and has not told the loop.

Rules:

1. asyncio's events, queues and futures are for the thread of their loop. If another thread sets one, the task that waits for it
   is due, but the loop sleeps until anything else wakes it: a timer, a socket, ``call_soon_threadsafe()``.
2. A loop sleeps if its thread is in its selector, where it was at an earlier moment, and has not run in between.
3. When anything else wakes the loop, is unknown. So such a task counts as able to go on, and is unexplained.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_coroutines
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.wait import CallStack

NOT_TOLD = "its turn: its loop sleeps, as another thread has woken the task without call_soon_threadsafe()"


@dataclass(frozen=True, slots=True, eq=False)
class DueTask:
    """A task that is due, and the position of its loop's thread."""

    task: OwnRef
    where: tuple[object, ...]


def due_tasks(stacks: Iterable[CallStack]) -> dict[int, DueTask]:
    """The tasks, by identity, that loops which sleep are to run; ``stacks``: of all threads."""
    return {id(task): DueTask(OwnRef(task), where) for task, where in _due(stacks)}


def still_due(before: dict[int, DueTask], stacks: Iterable[CallStack]) -> Iterator[CallStack]:
    """The stacks of those that were due ``before``, and whose loops have slept since."""
    for task, where in _due(stacks):
        was = before.get(id(task))
        if was is not None and was.task() is task and was.where == where:
            frames = frames_of_coroutines(reversed(compat.await_chain(task.get_coro())))
            yield CallStack(tuple(frame for frame, _ in frames), task=task)


def _due(stacks: Iterable[CallStack]) -> Iterator[tuple[Task, tuple[object, ...]]]:
    for stack in stacks:
        if not stack.frames or stack.frames[0].f_code.co_filename != selectors.__file__:
            continue
        for _, loop in compat.loops_in(stack.frames)[:1]:
            for handle in compat.ready_of(loop):
                for one in compat.bound_to(compat.callback_of(handle)[0]):
                    if compat.is_task(one) and not one.done():
                        yield one, where_is(stack.ident, stack.frames[0])
