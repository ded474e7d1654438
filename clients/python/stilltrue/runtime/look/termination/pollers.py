"""Threads and tasks that sleep, look for work and call, again and again: an outbox's publisher, a leader, a heartbeat.

Rules:

1. Where such a thread sleeps, nothing tells whether it will find work when it wakes. It is where it stood at the declaration,
   so the declaration covers it, until it is seen to act by itself: it has made its first call since, or has begun its first
   recorded wait. Then its process is not idle, unless it declares its work (``busy()``) or ``idle()`` is called again.
2. A sleep is ``time.sleep()``, ``asyncio.sleep()``, or a wait with a timeout for an event. A worker that polls a queue or a
   condition does not count: whoever gives it work wakes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.declared.idle_declaration import IdleDeclaration
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.tasks import Task, is_timed
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.code.instructions_ahead import names_at

FirstActed = Callable[[threading.Thread | Task], float | None]
"""When a thread or task first called, waited or served (monotonic); None: never."""
_SLEEP, _EVENT_WAIT, _WAIT_FOR = asyncio.sleep.__code__, asyncio.Event.wait.__code__, asyncio.wait_for.__code__


def is_poller(thread: threading.Thread | None, place: Place, covered: IdleDeclaration, first_acted: FirstActed) -> bool:
    """Whether a thread that stands where it stood has acted by itself since the declaration, and sleeps again."""
    if thread is None or place.ident in covered.declaring or place.ident == covered.by:
        return False
    return _is_since(first_acted(thread), covered) and _sleeps(place.frames)


def is_polling_task(task: Task, covered: IdleDeclaration, timed: frozenset[int], first_acted: FirstActed) -> bool:
    """The same for a task. ``timed``: the tasks and futures that timers wake."""
    if id(task) in covered.declaring or id(task) == covered.by or ref(task) not in covered.tasks:
        return False
    return _is_since(first_acted(task), covered) and _task_sleeps(task, timed)


def _is_since(acted: float | None, covered: IdleDeclaration) -> bool:
    return acted is not None and acted > covered.made_at


def _sleeps(frames: Sequence[FrameType]) -> bool:
    return _calls_sleep(frames[0].f_code, frames[0].f_lasti) or (
        compat.waits_for_event(frames) and not compat.is_endless_wait(frames[0])
    )


@cached_by_code
def _calls_sleep(code: CodeType, at: int) -> bool:
    return "sleep" in names_at(code, at)


def _task_sleeps(task: Task, timed: frozenset[int]) -> bool:
    chain = compat.await_chain(task.get_coro())
    inner: Any = chain[-1] if chain else None
    code = None if inner is None else compat.code_of(inner)
    if code is _WAIT_FOR:  # before Python 3.12, which waits in the task itself
        frame = frame_of(inner)
        awaited: Any = None if frame is None else variables_of(frame).get("fut")
        within = compat.await_chain(awaited.get_coro()) if compat.is_task(awaited) else []
        return bool(within) and compat.code_of(within[-1]) is _EVENT_WAIT
    return code is _SLEEP or (code is _EVENT_WAIT and is_timed(task, timed))
