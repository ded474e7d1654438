"""Whose end is passed on to a suspect: the tasks that await its task, however indirectly.

Rules:

1. A task that is cancelled cancels what it awaits. So a party that may cancel a task may cancel all that it awaits, and so
   on; a sibling that fails in its task group does, and a server that stops.
2. The cut has recorded the siblings that existed then: those that are not suspected have joined since.
3. An awaiting task without a wait that is recorded may go on, and end what it awaits. One with a wait that is not suspected has
   begun to await since the cut. The detector does not know yet who may cancel it there: that is doubt.
"""

from __future__ import annotations

from collections import deque

from stilltrue.runtime.introspection.tasks import Task, awaiters

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
