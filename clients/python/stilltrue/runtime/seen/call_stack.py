"""Where a thread or a task stands, and what changes when it runs."""

from __future__ import annotations

from types import FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_along
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.seen.wait import CallStack, Task


def where_is(ident: int, frame: FrameType | None) -> tuple[object, ...]:
    """What changes when a thread runs: its innermost frame, the instruction there, its processor time."""
    return (id(frame), None if frame is None else frame.f_lasti, compat.processor_time(ident))


def stack_of_task(task: Task) -> CallStack:
    """Where a task stands that is suspended."""
    future = blocking_future(task)
    if future is None:
        return CallStack((), task=task)
    chain = frames_along(reversed(compat.chain_of(task.get_coro())))
    return CallStack(tuple(frame for frame, _ in chain), task=task, future=future, coroutines=tuple(one for _, one in chain))
