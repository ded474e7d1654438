"""Waits of threads and tasks that ask again and again whether something has ended: ``while not future.done(): sleep(1)``.

Rules:

1. A thread sleeps, or joins with a timeout, or a task sleeps, in a loop that does nothing else than asking
   (:mod:`~stilltrue.runtime.waits.resolvers.polling_loops`): whether a thread or a process of ``multiprocessing`` is alive,
   whether a future of ``concurrent.futures`` or a task of asyncio is done, whether a child of ``subprocess`` has ended. It
   waits for what ends these. So does a thread whose loop asks by a call that waits for a time itself: for the result of a
   future, or for a lock or a share of a semaphore.
2. It runs now and then. It is in the same wait while it is in the same loop, for the same thing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_coroutines, variables_of
from stilltrue.runtime.introspection.origins import is_library
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.pipes.child_output import file_of_child
from stilltrue.runtime.waits.resolvers.future_results import wait_for_results
from stilltrue.runtime.waits.resolvers.locks import LOCKS_AND_SEMAPHORES, wait_for_lock
from stilltrue.runtime.waits.resolvers.polling_loops import (
    Asking,
    asked_by_thread,
    asking_in,
    is_interrupted,
)
from stilltrue.runtime.waits.resolvers.processes import ENDING_ANYWHERE, ending_at_pipe, wait_for_child
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait, Task

_WHAT = "the end of {}, about which it asks again and again"
_OF_FUTURES = (Future.done, Future.result, Future.exception)
_PROCESSES = "multiprocessing.process"
"""Not imported here: a program that has a process of its own has imported it."""


def _read_join(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    timed = stack.task is None and variables_of(stack.frames[at]).get("timeout") is not None
    asking = asking_in(stack.frames[at + 1]) if timed and at + 1 < len(stack.frames) else None
    return None if asking is None or is_interrupted(stack.frames) else _of_thread(asking, stack, view)


def _read_sleep(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    if stack.task is not None:
        return _read_task(stack, stack.task, view)
    asking = asked_by_thread(stack.frames)
    return None if asking is None else _of_thread(asking, stack, view)


def _of_thread(asking: Asking, stack: CallStack, view: ProcessView) -> SeenWait | None:
    is_lock = type(asking.thing()) in LOCKS_AND_SEMAPHORES and asking.loop.asks == "acquire"
    wait = wait_for_lock(asking.thing(), stack, view) if is_lock else _wait_for(asking, stack, view)
    if wait is None:
        return None
    return replace(wait, same=asking.still_in_thread(stack.ident), still=asking.still_asks(wait.still))


def _read_task(stack: CallStack, task: Task, view: ProcessView) -> SeenWait | None:
    at = _sleeping_task_at(stack.frames)
    asking = None if at < 0 or is_interrupted(stack.frames) else asking_in(stack.frames[at])
    wait = None if asking is None else _wait_for(asking, stack, view)
    if asking is None or wait is None:
        return None
    waiter, still_in = OwnRef(task), asking.still_in

    def same() -> bool:
        known = waiter()
        chain = [] if known is None else compat.await_chain(known.get_coro())
        return still_in(frame for frame, _ in frames_of_coroutines(chain))

    return replace(wait, same=same, still=asking.still_asks(wait.still))


def _sleeping_task_at(frames: Sequence[FrameType]) -> int:
    """The frame that awaits ``asyncio.sleep()``, or a library's function around it; -1 if there is none."""
    if not frames or frames[0].f_code is not asyncio.sleep.__code__:
        return -1
    others = (at for at, one in enumerate(frames) if not (is_library(one.f_code) and one.f_code.co_name == "sleep"))
    return next(others, -1)


def _wait_for(asking: Asking, stack: CallStack, view: ProcessView) -> SeenWait | None:
    """The wait for the end of what is asked; None if that is not known."""
    awaited: Any = asking.thing()
    kind = type(awaited)
    method = getattr(kind, asking.loop.asks, None)
    if issubclass(kind, threading.Thread) and method is threading.Thread.is_alive and awaited.ident is not None:
        return SeenWait(on=awaited, enders=(awaited,), what=_WHAT)
    if compat.is_task(awaited) and method is asyncio.Task.done and awaited is not stack.task:
        return SeenWait(on=awaited, enders=(awaited,), what=_WHAT)
    if issubclass(kind, Future) and method in _OF_FUTURES:
        wait = wait_for_results(awaited, (awaited,), stack, view, needs_all=False)
        return wait if compat.is_running_future(awaited) else replace(wait, handles=(*wait.handles, awaited))
    if issubclass(kind, subprocess.Popen) and method is subprocess.Popen.poll:
        at_pipe = stack.task is None and file_of_child(awaited) is not None
        anywhere = ending_at_pipe() if at_pipe else ENDING_ANYWHERE
        return _wait_for_child(awaited, awaited, ending_names_anywhere=anywhere, at_child=at_pipe)
    processes = sys.modules.get(_PROCESSES)
    if processes is not None and issubclass(kind, processes.BaseProcess) and method is processes.BaseProcess.is_alive:
        return _wait_for_child(awaited, attribute_of(awaited, "_popen"))
    return None


def _wait_for_child(process: Any, started: Any, **of_wait: Any) -> SeenWait | None:
    """``started``: what has the child's process id."""
    pid = attribute_of(started, "pid")
    return wait_for_child(pid, process, on=process, **of_wait) if type(pid) is int else None


RESOLVERS = (
    Resolver((("threading.py", "Thread.join"), ("multiprocessing/process.py", "BaseProcess.join")), _read_join),
    Resolver((), _read_sleep),
)
