"""Tasks that await each other in a cycle, which need not involve any call or lock."""

from __future__ import annotations

from collections.abc import Mapping

from stilltrue.runtime.introspection.tasks import awaits_tasks, read
from stilltrue.runtime.waits.wait import CallStack, Task


def tasks_in_cycles(stacks: Mapping[Task, CallStack]) -> list[Task]:
    """The tasks that await tasks on or behind a cycle, without a timeout, in the order of ``stacks``."""
    awaiting: dict[Task, set[Task]] = {}
    awaited_by: dict[Task, list[Task]] = {}
    for task, stack in stacks.items():
        awaited = read(task, stack.future) if awaits_tasks(stack.future, stack.frames) else None
        if awaited is None or awaited.until is not None:
            continue
        awaiting[task] = {one for one in awaited.futures if one in stacks}
        for one in awaiting[task]:
            awaited_by.setdefault(one, []).append(task)
    gone = [task for task in stacks if not awaiting.get(task)]
    while gone:
        ended = gone.pop()
        awaiting.pop(ended, None)
        for task in awaited_by.get(ended, ()):
            if task in awaiting:
                awaiting[task].discard(ended)
                gone += [] if awaiting[task] else [task]
    return list(awaiting)
