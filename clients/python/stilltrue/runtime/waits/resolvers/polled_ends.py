"""Waits of threads and tasks that ask again and again whether something has ended: ``while not future.done(): sleep(1)``.

Rules:

1. A thread sleeps, or joins with a timeout, or a task sleeps, in a loop that does nothing else than asking
   (:mod:`~stilltrue.runtime.waits.resolvers.polling_loops`): whether a thread or a process of ``multiprocessing`` is alive,
   whether a future of ``concurrent.futures`` or a task of asyncio is done. It waits for what ends these.
2. It runs now and then. It is in the same wait while it is in the same loop, for the same thing.
3. A program asks like this to be able to handle Ctrl-C, too: then its other threads may be idle until a signal comes. So one
   counts as active if one of its functions names ``KeyboardInterrupt``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_coroutines, frames_of_thread, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_library
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.instructions_ahead import names_at
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.resolvers.future_results import wait_for_results
from stilltrue.runtime.waits.resolvers.polling_loops import PollingLoop, asked_in, may_ask, value_in
from stilltrue.runtime.waits.resolvers.processes import wait_for_child
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_WHAT = "the end of {}, about which it asks again and again"
_PROCESSES = "multiprocessing.process"
"""Not imported here: a program that has a process of its own has imported it."""


def may_poll(code: CodeType) -> bool:
    """Whether a function may sleep until something has ended."""
    return may_ask(code) and "sleep" in (*code.co_names, *code.co_varnames)


def _read_join(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    timed = variables_of(stack.frames[at]).get("timeout") is not None
    return _of(stack, at + 1, view) if timed and at + 1 < len(stack.frames) else None


def _read_sleep(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    if stack.task is not None:
        return _of(stack, _sleeping_task_at(stack.frames), view)
    frame = stack.frames[0]
    return _of(stack, 0, view) if may_poll(frame.f_code) and _sleeps(frame) else None


def _sleeps(frame: FrameType) -> bool:
    """Whether all that a frame may call at its position, by name, is ``time.sleep()``."""
    names = names_at(frame.f_code, frame.f_lasti)
    known = (frame.f_globals.get(one) for one in names)
    return "sleep" in names and any(one is time or one is time.sleep for one in known)


def _sleeping_task_at(frames: Sequence[FrameType]) -> int:
    """The frame that awaits ``asyncio.sleep()``, or a library's function around it; -1 if there is none."""
    if not frames or frames[0].f_code is not asyncio.sleep.__code__:
        return -1
    others = (at for at, one in enumerate(frames) if not (is_library(one.f_code) and one.f_code.co_name == "sleep"))
    return next(others, -1)


def _of(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    asked = None if at < 0 or _is_interrupted(stack) else asked_in(stack.frames[at])
    if asked is None:
        return None
    loop, awaited = asked
    wait = _wait_for(awaited, loop, stack, view)
    return None if wait is None else replace(wait, same=_same(stack, stack.frames[at].f_code, loop, OwnRef(awaited)))


def _wait_for(awaited: Any, loop: PollingLoop, stack: CallStack, view: ProcessView) -> SeenWait | None:
    """The wait for the end of what a loop asks; None if that is not known."""
    kind = type(awaited)
    method = getattr(kind, loop.asks, None)
    if issubclass(kind, threading.Thread) and method is threading.Thread.is_alive and awaited.ident is not None:
        return SeenWait(on=awaited, enders=(awaited,), what=_WHAT)
    if compat.is_task(awaited) and method is asyncio.Task.done and awaited is not stack.task:
        return SeenWait(on=awaited, enders=(awaited,), what=_WHAT)
    if issubclass(kind, Future) and method is Future.done:
        wait = wait_for_results(awaited, (awaited,), stack, view, needs_all=False)
        return wait if compat.is_running_future(awaited) else replace(wait, handles=(*wait.handles, awaited))
    processes = sys.modules.get(_PROCESSES)
    if processes is not None and issubclass(kind, processes.BaseProcess) and method is processes.BaseProcess.is_alive:
        pid = attribute_of(attribute_of(awaited, "_popen"), "pid")
        return wait_for_child(pid, awaited, on=awaited) if type(pid) is int else None
    return None


def _same(stack: CallStack, code: CodeType, loop: PollingLoop, weak: OwnRef) -> Callable[[], bool]:
    """Rule 2."""
    ident, task = stack.ident, None if stack.task is None else OwnRef(stack.task)

    def same() -> bool:
        waiter = None if task is None else task()
        if task is None:
            frames = frames_of_thread(ident)
        else:
            chain = [] if waiter is None else compat.await_chain(waiter.get_coro())
            frames = [frame for frame, _ in frames_of_coroutines(chain)]
        every = (one for one in frames if one.f_code is code)
        return any(one.f_lasti in loop.offsets and value_in(one, loop.variable) is weak() for one in every)

    return same


def _is_interrupted(stack: CallStack) -> bool:
    """Rule 3."""
    return any("KeyboardInterrupt" in frame.f_code.co_names for frame in stack.frames if is_application(frame.f_code))


RESOLVERS = (
    Resolver((("threading.py", "Thread.join"), ("multiprocessing/process.py", "BaseProcess.join")), _read_join),
    Resolver((), _read_sleep),
)
