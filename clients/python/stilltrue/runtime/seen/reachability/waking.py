"""Whether a task is to wake another: its code that is still ahead does what ends the other's wait.

A circle of tasks each of which would set the event, notify the condition or complete the future that the next one awaits is
a deadlock; idle workers at a queue that nobody feeds are none, though they can reach what they wait for as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import CodeType, FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.ahead import ahead_of
from stilltrue.runtime.look.code.reachable_names import reachable_names
from stilltrue.runtime.seen.wait import Task

_WAKING: dict[CodeType, frozenset[str]] = {
    asyncio.Event.wait.__code__: frozenset({"set"}),
    asyncio.Condition.wait.__code__: frozenset({"notify", "notify_all"}),
}
_COMPLETING = frozenset({"set_result", "set_exception"})


def is_to_wake(task: Task, waiting: Task) -> bool:
    """Whether ``task`` names ahead what wakes ``waiting`` from an event, a condition or a plain future."""
    waking = _waking(waiting)
    return bool(waking) and any(not waking.isdisjoint(_named_ahead(frame)) for frame in _frames_of(task))


def _waking(waiting: Task) -> frozenset[str]:
    """What ends the wait of a task; empty where that is left open."""
    innermost = next(_frames_of(waiting), None)
    if innermost is None:
        return frozenset()
    return _COMPLETING if is_application(innermost.f_code) else _WAKING.get(innermost.f_code, frozenset())


def _named_ahead(frame: FrameType) -> frozenset[str]:
    if not is_application(frame.f_code):
        return frozenset()
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    begin = ahead.names | ahead.stored if ahead.known else None
    return reachable_names(frame.f_code, frame.f_globals, variables_of(frame).values(), begin, far=False).names


def _frames_of(task: Task) -> Iterator[FrameType]:
    """The frames of a suspended task, innermost first."""
    found = [frame for one in compat.chain_of(task.get_coro()) if (frame := frame_of(one)) is not None]
    return reversed(found)
