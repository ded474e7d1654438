"""Threads of an executor that run an event loop of their own for one task (``asyncio.run``): such a thread waits for that task.

Rules:

1. It is the thread's wait only where the loop has nothing to run at this moment: the thread stands in its selector.
2. It ends when the task does, or by whoever stops the loop.
3. Of other threads it is not said: that a program's main thread runs the program is nothing that somebody is to be told.
"""

from __future__ import annotations

from itertools import takewhile

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_library
from stilltrue.runtime.seen.wait import CallStack, Resolver, Scene, SeenWait

_STOPPING = frozenset({"stop"})


def _read(stack: CallStack, at: int, _: Scene) -> SeenWait | None:
    if stack.task is not None or compat.item_run_by(list(stack.frames)) is None:
        return None
    task = compat.main_task_in(stack.frames[at])
    within = list(takewhile(lambda frame: compat.loop_in(frame) is None, stack.frames[:at]))
    if not compat.is_task(task) or task.done() or not all(is_library(frame.f_code) for frame in within):
        return None
    if any(compat.is_step(frame.f_code) for frame in within):
        return None
    loop = task.get_loop()
    return SeenWait(on=task, enders=(task,), what="the end of {}, for which it runs a loop", undone=(loop,), by=_STOPPING)


RESOLVERS = (Resolver((("asyncio/base_events.py", "BaseEventLoop.run_until_complete"),), _read),)
