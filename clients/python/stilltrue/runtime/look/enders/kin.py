"""Whose end is passed on to a suspect: the tasks that await its task, however indirectly; and who is bound to wait for it.

Rules:

1. A task that is cancelled cancels what it awaits. So a party that may cancel a task may cancel all that it awaits, and so
   on; a sibling that fails in its task group does, and a server that stops.
2. The cut has recorded the siblings that existed then: those that are not suspected have joined since.
3. An awaiting task without a wait that is recorded may go on, and end what it awaits. One with a wait that is not suspected has
   begun to await since the cut. The detector does not know yet who may cancel it there: that is doubt.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task, awaiters, blocking_future, read

KIN_MAX = 200
"""Tasks above one suspect that are looked at; there are rarely more than three."""


def kin_of(task: Task) -> list[Task]:
    """The tasks that await ``task``, directly or not, nearest first (rule 1)."""
    found: dict[Task, None] = {}
    todo = deque([task])
    while todo and len(found) < KIN_MAX:
        for other in awaiters(todo.popleft()):
            if other is not task and other not in found and not other.done():
                found[other] = None
                todo.append(other)
    return list(found)


def is_bound(waiter: object, place: Place, places: Places) -> bool:
    """Whether ``waiter`` is a task that goes on only once the task at ``place`` has ended."""
    if place.task is None or not compat.is_task(waiter):
        return False
    todo, seen = [waiter], {waiter}
    while todo:
        bound = _bound_to(todo.pop(), places)
        if place.task in bound:
            return True
        more = [task for task in bound if compat.is_task(task) and task not in seen]
        seen.update(more)
        todo += more
    return False


def _bound_to(task: Any, places: Places) -> tuple[Any, ...]:
    future = blocking_future(task)
    if future is None:
        return ()
    awaited = read(task, future, places.coroutine_of(task))
    if awaited is None or awaited.until is not None or not (awaited.needs_all or len(awaited.futures) == 1):
        return ()
    if awaited.shielded:  # once it is cancelled it goes on before these do
        return ()
    return awaited.futures
