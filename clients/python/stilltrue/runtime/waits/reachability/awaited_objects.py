"""The object for which a thread waits without a timeout, and the operations that end the wait: rule 1 of ``thread_waits``."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, _base, thread
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import feeds_requests, is_application
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.ending_operations import (
    ACKNOWLEDGING,
    AT_BARRIERS,
    COMPLETING_OR_CANCELLING,
    NOTIFYING,
    PUTTING,
    RELEASE,
    SETTING,
    SHUTTING,
    TAKING,
)
from stilltrue.runtime.waits.pipes import child_connections, child_files, child_output
from stilltrue.runtime.waits.reachability.simple_queues import queue_awaited
from stilltrue.runtime.waits.resolvers.locks import LOCK, RELEASING, lock_acquired
from stilltrue.runtime.waits.resolvers.polling_loops import Asking, asked_by_thread

WHAT = "an object that only {} can reach"
Still = Callable[[], bool]
_FILES = frozenset({threading.__file__, queue.__file__, _base.__file__})
_TELLING = frozenset({"set_running_or_notify_cancel"})
_WAKING: dict[CodeType, frozenset[str]] = {
    threading.Event.wait.__code__: SETTING,
    threading.Condition.wait.__code__: NOTIFYING,
    threading.Condition.wait_for.__code__: NOTIFYING,
    threading.Barrier.wait.__code__: AT_BARRIERS,
    threading.Semaphore.acquire.__code__: RELEASE,
    queue.Queue.get.__code__: PUTTING | SHUTTING,
    queue.Queue.put.__code__: TAKING | SHUTTING,
    queue.Queue.join.__code__: ACKNOWLEDGING | SHUTTING,
    Future.result.__code__: COMPLETING_OR_CANCELLING,
    Future.exception.__code__: COMPLETING_OR_CANCELLING,
}
_ASKED: dict[type, dict[str, CodeType]] = {
    threading.Event: dict.fromkeys(("is_set", "wait"), threading.Event.wait.__code__),
    Future: {"result": Future.result.__code__, "exception": Future.exception.__code__},
    **{kind: {"get": queue.Queue.get.__code__} for kind in (queue.Queue, queue.LifoQueue, queue.PriorityQueue)},
}
"""By class and method of what a thread asks about: the wait for which it stands."""
_RUNNING = frozenset({threading.Thread.run.__code__, thread._WorkItem.run.__code__})  # noqa: SLF001 - there is no public one
_NEVER_IDLE = frozenset(
    one.__code__ for one in (threading.Barrier.wait, queue.Queue.put, queue.Queue.join, Future.result, Future.exception)
)


@dataclass(frozen=True, slots=True)
class Awaited:
    """An object that a thread waits for.

    ``waking``: the names of the operations that end the wait; none for the file of a child process, of which any use does.
    ``never_idle``: no idle thread waits so. ``what``: the wait as text, where ``{}`` stands for who can end it. ``still``:
    makes, of the thread and its frames, what the second look asks besides. ``asking``: the thread asks again and again.
    """

    thing: Any
    waking: frozenset[str] = frozenset()
    never_idle: bool = False
    what: str = WHAT
    still: Callable[[int, Sequence[FrameType]], Still] | None = None
    asking: Asking | None = None


def awaited_in(ident: int, frames: Sequence[FrameType]) -> Awaited | None:
    """The object that a thread with these frames waits for; None if it does not wait so."""
    if not frames:
        return None
    if frames[0].f_code is threading.Condition.wait.__code__:
        return _awaited_in_library(frames) if compat.is_endless_wait(frames[0]) else _asked_about(frames)
    simple = queue_awaited(frames[0])
    if simple is not None:
        return Awaited(simple, PUTTING)
    lock = lock_acquired(frames) if is_application(frames[0].f_code) else None
    if type(lock) is LOCK and lock.locked():
        return Awaited(lock, RELEASING)
    return _asked_about(frames) or _awaited_at_child(ident, frames)


def _asked_about(frames: Sequence[FrameType]) -> Awaited | None:
    """What a thread asks about again and again: an event, a queue or a future, say, or a child at a pipe."""
    asking = asked_by_thread(frames)
    thing = None if asking is None else asking.thing()
    if asking is None or thing is None:
        return None
    asks = asking.loop.asks
    code = _ASKED.get(type(thing), {}).get(asks)
    if code is not None or (type(thing) is queue.SimpleQueue and asks == "get"):
        waking = PUTTING if code is None else _WAKING[code]
        changes = asking.still_asks(None)
        return Awaited(thing, waking, code in _NEVER_IDLE, still=changes and (lambda *_: changes), asking=asking)
    if type(thing) is not subprocess.Popen or asks != "poll" or (file := child_output.file_of_child(thing)) is None:
        return None
    weak = OwnRef(thing)
    still = lambda *_: child_output.still_waits(weak())  # noqa: E731
    return Awaited(file, never_idle=True, what=child_output.WHAT, still=still, asking=asking)


def _awaited_at_child(ident: int, frames: Sequence[FrameType]) -> Awaited | None:
    file = child_output.file_at_child(frames)
    if file is not None:
        still = lambda _, those: child_output.still_waits(child_output.process_of(those))  # noqa: E731
        return Awaited(file, never_idle=True, what=child_output.WHAT, still=still)
    thing = child_connections.connection_at_child(frames)
    if thing is not None:
        weak = OwnRef(thing)
        return Awaited(
            thing,
            never_idle=True,
            what=child_connections.WHAT,
            still=lambda _, those: child_connections.still_waits(weak(), those),
        )
    file = child_files.other_file(ident, frames)
    return None if file is None else Awaited(file, never_idle=True, what=child_files.WHAT, still=child_files.still_waits)


def _awaited_in_library(frames: Sequence[FrameType]) -> Awaited | None:
    calls = (index for index, one in enumerate(frames) if one.f_code.co_filename not in _FILES or one.f_code in _RUNNING)
    at = next(calls, len(frames))
    code = frames[at - 1].f_code
    if at == len(frames) or not _is_caller(frames[at].f_code):
        return None
    cancelled = compat.cancelled_unnoticed(frames[at - 1])
    if cancelled is not None:
        return Awaited(cancelled, _TELLING, never_idle=True)
    if code not in _WAKING:
        return None
    thing = variables_of(frames[at - 1]).get("self")
    return None if thing is None else Awaited(thing, _WAKING[code], code in _NEVER_IDLE)


def _is_caller(code: CodeType) -> bool:
    """Whether a function is the application's, or runs what that has given to a thread or an executor (``to_thread(get)``).

    Or it is the agent's that asks the application's iterator for the next request.
    """
    return is_application(code) or feeds_requests(code) or code in _RUNNING
