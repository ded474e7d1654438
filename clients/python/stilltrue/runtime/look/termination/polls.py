"""Tells which threads and tasks poll: they sleep again and again at one place, until they find something changed.

Rules:

1. A thread polls if its innermost frame of the application's code is the same one, at the same instruction, at two moments,
   although it has run in between, and if it has hardly used the processor: it sleeps, tries a lock, or waits with a timeout.
2. A task polls if it is in ``asyncio.sleep()`` at both moments, called from the same instruction of the same frame.
3. For what it waits nobody knows: a flag, a file, a database's lock. So it counts as able to go on, and is unexplained if it
   serves a call with a single reply. One that serves none is not: nearly every program has a timer of its own. But a call that
   waits for it counts.
"""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import NamedTuple

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application, is_http_library
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.wait import CallStack

POLLING = "polling"
_SHARE_OF_PROCESSOR_MAX = 0.1


class PollPlace(NamedTuple):
    """Where a thread or task may poll: the frame and its instruction, and the processor time that the thread has used."""

    frame: int
    instruction: int
    seconds: float
    task: OwnRef | None = None


def poll_place(stack: CallStack) -> PollPlace | None:
    """Where the party with this stack may poll; None: nowhere."""
    frame = next((one for one in stack.frames if is_application(one.f_code) and not is_http_library(one.f_code)), None)
    if frame is None:
        return None
    if stack.task is None:
        seconds = compat.processor_time(stack.ident)
        return None if seconds is None else PollPlace(id(frame), frame.f_lasti, seconds)
    return PollPlace(id(frame), frame.f_lasti, 0.0, OwnRef(stack.task)) if _sleeps(stack.frames[0]) else None


def polls(was: PollPlace | None, stack: CallStack, seconds: float) -> bool:
    """Whether the party with this stack has polled since it ``was`` somewhere, for ``seconds``."""
    now = None if was is None else poll_place(stack)
    if was is None or now is None or was[:2] != now[:2] or (was.task is not None and was.task() is not stack.task):
        return False
    return now.seconds - was.seconds <= _SHARE_OF_PROCESSOR_MAX * seconds


def _sleeps(innermost: FrameType) -> bool:
    return innermost.f_code is asyncio.sleep.__code__
