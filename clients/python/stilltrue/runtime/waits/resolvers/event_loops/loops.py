"""Threads that run their own event loop for one task (``asyncio.run``) while others depend on them: they wait for that task.

Rules:

1. The thread waits only while its loop has nothing to run, so that the thread is in the loop's selector.
2. The wait ends when the task does, or when a party stops the loop.
3. Others depend on it if it runs an item of an executor, is joined, or runs the loop within a lock's block or an import. Other
   threads are left out: that the main thread runs the program's loop is of no interest. So is asgiref's thread, as its caller
   waits for the task (:mod:`~stilltrue.runtime.waits.resolvers.event_loops.asgiref_waits`).
"""

from __future__ import annotations

from itertools import takewhile
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_library
from stilltrue.runtime.waits.holders.held_locks import held_by
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_IMPORTING = ("<frozen importlib._bootstrap>", "_find_and_load")
_STOPPING = frozenset({"stop"})
_OF_ASGIREF = "AsyncToSync.__call__.<locals>.new_loop_wrap"


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    if stack.task is not None or not _is_depended_on(stack, at, view):
        return None
    task = compat.main_task_in(stack.frames[at])
    within = list(takewhile(lambda frame: compat.loop_in(frame) is None, stack.frames[:at]))
    if not compat.is_task(task) or task.done() or _is_asgirefs(task) or not all(is_library(frame.f_code) for frame in within):
        return None
    if any(compat.is_loop_step(frame.f_code) for frame in within):
        return None
    loop = task.get_loop()
    return SeenWait(
        on=task, enders=(task,), what="the end of {}, for which it runs a loop", ended_through=(loop,), ending_names=_STOPPING
    )


def _is_depended_on(stack: CallStack, at: int, view: ProcessView) -> bool:
    """Rule 3."""
    if compat.running_item(list(stack.frames)) is not None or any(map(_imports, stack.frames[at + 1 :])):
        return True
    return stack.ident in view.cached(_joined, lambda: _joined(view)) or bool(held_by(stack)[0])


def _imports(frame: FrameType) -> bool:
    return (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORTING


def _joined(view: ProcessView) -> frozenset[int]:
    """The threads for whose end another thread waits."""
    joined = (thread for one in view.stacks().values() for frame in one.frames[:1] for thread in compat.joined_at(frame))
    return frozenset(thread.ident for thread in joined if thread.ident is not None)


def _is_asgirefs(task: Any) -> bool:
    coroutines = (*compat.wrappers_of(task), compat.coroutine_of(task))  # its own awaits the application's
    return any(getattr(one, "__qualname__", "") == _OF_ASGIREF for one in coroutines)


RESOLVERS = (Resolver((("asyncio/base_events.py", "BaseEventLoop.run_until_complete"),), _read),)
