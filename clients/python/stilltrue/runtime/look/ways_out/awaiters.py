"""The tasks that await a suspect's task, directly or not, and tasks that must wait for it first.

Rules:

1. A cancelled task cancels what it awaits. So a party that may cancel a task may cancel everything it awaits, transitively; so
   may a failing sibling in its task group, and a stopping server.
2. The cut has recorded the siblings that existed then. Siblings that are not suspected have joined since.
3. An awaiting task without a recorded wait may continue and end what it awaits. One with a wait that is not suspected began to
   await after the cut; the detector does not know yet who may cancel it, which is doubt.
4. A task that awaits a reply of a ``grpc.aio`` call and is cancelled cancels the call, and this cancels the task that sends the
   requests. So the former counts as awaiting the latter.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.tasks import Task, awaiters, blocking_future, read
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.waits.streams.calls_of_tasks import call_fed_by, readers_of

AWAITERS_MAX = 200
"""Maximum number of tasks checked above one suspect; there are rarely more than three."""


def all_awaiters(task: Task) -> list[Task]:
    """The tasks whose cancellation cancels ``task``, directly or not, nearest first (rules 1 and 4)."""
    found: dict[Task, None] = {}
    todo = deque([task])
    while todo and len(found) < AWAITERS_MAX:
        one = todo.popleft()
        fed = call_fed_by(one)
        for other in (*awaiters(one), *(() if fed is None else readers_of(fed, one))):
            if other is not task and other not in found and not other.done():
                found[other] = None
                todo.append(other)
    return list(found)


def must_wait_for(waiter: object, place: Place, places: Places) -> bool:
    """Whether ``waiter`` is a task that continues only after the task at ``place`` has ended."""
    if place.task is None or not compat.is_task(waiter):
        return False
    todo, seen = [waiter], {waiter}
    while todo:
        bound = _tasks_needed_by(todo.pop(), places)
        if place.task in bound:
            return True
        more = [task for task in bound if compat.is_task(task) and task not in seen]
        seen.update(more)
        todo += more
    return False


def _tasks_needed_by(task: Any, places: Places) -> tuple[Any, ...]:
    future = blocking_future(task)
    if future is None:
        return ()
    awaited = read(task, future, places.coroutine_of(task))
    if awaited is None or awaited.until is not None or not (awaited.needs_all or len(awaited.futures) == 1):
        return ()
    if awaited.shielded:  # a cancelled waiter continues before its shielded tasks do
        return ()
    return awaited.futures
