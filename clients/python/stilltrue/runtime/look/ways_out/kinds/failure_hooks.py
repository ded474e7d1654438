"""The application's failure hooks, called when a thread, or a task or callback of an event loop, raises.

Rules:

1. ``threading.excepthook`` is called for a failed thread, ``sys.excepthook`` for the main thread, and a loop's exception
   handler for its tasks and callbacks. A thread hook that names ``excepthook`` passes failures on to the other hook.
2. Threads and tasks that make progress fail if the code ahead of them may fail (:mod:`~stilltrue.runtime.look.code.failure`).
3. A program that does not ignore SIGPIPE, as Python does unless it is told otherwise, ends when it writes to a closed pipe or
   socket: so a thread or task may do that makes progress and calls anything else than what sleeps, waits or logs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application, is_application_callback
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.code.failure import call_may_fail, may_fail, may_write
from stilltrue.runtime.look.progress.stack_ahead import frames_of_task


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hook:
    """An application hook and what may fail: ``threads`` (identities), ``tasks``, and callbacks due on ``loop``."""

    callback: Any
    text: str
    threads: tuple[int, ...] = ()
    tasks: tuple[Task, ...] = ()
    loop: asyncio.AbstractEventLoop | None = None
    callbacks: bool = False


def hooks_of_failure(places: Places) -> Iterator[Hook]:
    """All hooks that a failure may call."""
    main = threading.main_thread().ident
    others = [place for place in places.threads.values() if place.ident not in (main, threading.get_ident())]
    passed_on = "excepthook" in _names_of(threading.excepthook)
    yield from _of_threads(threading.excepthook, others)
    yield from _of_threads(sys.excepthook, [place for place in places.threads.values() if place.ident == main or passed_on])
    for loop in places.loops():
        handler = compat.exception_handler_of(loop)
        if is_application_callback(handler):
            yield from _of_loop(handler, loop)


def broken_pipe(places: Places) -> Hook | None:
    """What may write to a closed pipe or socket if that ends the process (rule 3); None: nothing."""
    if not hasattr(signal, "SIGPIPE") or signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL:
        return None
    others = [place for place in places.threads.values() if place.ident != threading.get_ident()]
    threads = tuple(place.ident for place in others if may_write(place.frames))
    every = (task for loop in places.loops() for task in compat.tasks_of(loop) or ())
    tasks = tuple(task for task in every if may_write(frames_of_task(task)))
    text = "SIGPIPE, which ends the process when it writes to a closed pipe"
    return Hook(callback=None, text=text, threads=threads, tasks=tasks) if threads or tasks else None


def _of_threads(hook: Any, places: list[Place]) -> Iterator[Hook]:
    failing = tuple(place.ident for place in places if may_fail(place.frames)) if is_application_callback(hook) else ()
    if failing:
        yield Hook(callback=hook, text="called when a thread fails", threads=failing)


def _of_loop(handler: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Hook]:
    every = compat.tasks_of(loop) or ()
    failing = tuple(task for task in every if may_fail(frames_of_task(task)) or any(map(_may_fail, _called_after(task))))
    due = any(_may_fail(compat.callback_of(handle)[0]) for handle in compat.handles_of(loop) or ())
    if failing or due:
        text = "called when a task or callback of its event loop fails"
        yield Hook(callback=handler, text=text, tasks=failing, loop=loop, callbacks=due)


def _called_after(task: Task) -> Iterator[Any]:
    return (callback for callback, _ in compat.callbacks_of(task))


def _may_fail(callback: Any) -> bool:
    code, _, _ = compat.code_behind(callback)
    return code is not None and is_application(code) and call_may_fail(code)


def _names_of(hook: Any) -> tuple[str, ...]:
    code, _, _ = compat.code_behind(hook)
    return () if code is None else code.co_names
