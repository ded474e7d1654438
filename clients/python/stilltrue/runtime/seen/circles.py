"""Tasks that await each other in a circle: nobody who serves or makes a call, and no lock, need be among them."""

from __future__ import annotations

from collections.abc import Mapping

from stilltrue.runtime.introspection.tasks import awaits_tasks, read
from stilltrue.runtime.seen.wait import Stand, Task


def in_circles(stands: Mapping[Task, Stand]) -> list[Task]:
    """The tasks that await tasks without a timeout, and these others, and so on without an end; in their order."""
    awaiting: dict[Task, set[Task]] = {}
    awaited_by: dict[Task, list[Task]] = {}
    for task, stand in stands.items():
        awaited = read(task, stand.future) if awaits_tasks(stand.future, stand.frames) else None
        if awaited is None or awaited.until is not None:
            continue
        awaiting[task] = {one for one in awaited.futures if one in stands}
        for one in awaiting[task]:
            awaited_by.setdefault(one, []).append(task)
    gone = [task for task in stands if not awaiting.get(task)]
    while gone:
        ended = gone.pop()
        awaiting.pop(ended, None)
        for task in awaited_by.get(ended, ()):
            if task in awaiting:
                awaiting[task].discard(ended)
                gone += [] if awaiting[task] else [task]
    return list(awaiting)
