"""Positions of threads and call stacks of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_coroutines
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.waits.wait import CallStack, Task


def where_is(ident: int, frame: FrameType | None) -> tuple[object, ...]:
    """A thread's innermost frame, its instruction there, and its processor time, one of which changes when the thread runs."""
    return (id(frame), None if frame is None else frame.f_lasti, compat.processor_time(ident))


def stack_of_task(task: Task) -> CallStack:
    """The call stack of a suspended task."""
    future = blocking_future(task)
    if future is None:
        return CallStack((), task=task)
    chain = frames_of_coroutines(reversed(compat.await_chain(task.get_coro())))
    return CallStack(tuple(frame for frame, _ in chain), task=task, future=future, coroutines=tuple(one for _, one in chain))


def sleeps(frames: Sequence[FrameType]) -> bool:
    """Whether a task with these frames, innermost first, is in ``asyncio.sleep()``."""
    return bool(frames) and frames[0].f_code is asyncio.sleep.__code__
