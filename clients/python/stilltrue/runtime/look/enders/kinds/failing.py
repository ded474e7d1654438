"""The application's hooks for failures: what is called when a thread, or something on an event loop, raises.

Rules:

1. ``threading.excepthook`` is called when a thread fails, ``sys.excepthook`` when the main thread does, and the exception
   handler of a loop when a task or a callback of it does. A hook for threads that names ``excepthook`` passes failures on to
   the other.
2. Those fail whose code still ahead may (:mod:`~stilltrue.runtime.look.code.failing`), if they go on.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.failing import begun_may_fail, may_fail
from stilltrue.runtime.look.progress.stretches import frames_of_task


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hook:
    """A hook of the application's, and who may fail: ``threads`` by identity, ``tasks``, what is due on ``loop``."""

    callback: Any
    text: str
    threads: tuple[int, ...] = ()
    tasks: tuple[Task, ...] = ()
    loop: asyncio.AbstractEventLoop | None = None
    callbacks: bool = False


def hooks_of_failure(places: Places) -> Iterator[Hook]:
    """Every hook that somebody's failure may call."""
    main = threading.main_thread().ident
    others = [place for place in places.threads.values() if place.ident not in (main, threading.get_ident())]
    passed_on = "excepthook" in _names_of(threading.excepthook)
    yield from _of_threads(threading.excepthook, others)
    yield from _of_threads(sys.excepthook, [place for place in places.threads.values() if place.ident == main or passed_on])
    for loop in places.loop_threads.values():
        handler = compat.exception_handler_of(loop)
        if _is_own(handler):
            yield from _of_loop(handler, loop)


def _of_threads(hook: Any, places: list[Place]) -> Iterator[Hook]:
    failing = tuple(place.ident for place in places if may_fail(place.frames)) if _is_own(hook) else ()
    if failing:
        yield Hook(callback=hook, text="called when a thread fails", threads=failing)


def _of_loop(handler: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Hook]:
    every = compat.tasks_of(loop) or ()
    failing = tuple(task for task in every if may_fail(frames_of_task(task)) or any(map(_may_fail, _called_after(task))))
    due = any(_may_fail(compat.called_by(handle)[0]) for handle in compat.handles_of(loop) or ())
    if failing or due:
        text = "called when something fails on its event loop"
        yield Hook(callback=handler, text=text, tasks=failing, loop=loop, callbacks=due)


def _called_after(task: Task) -> Iterator[Any]:
    return (callback for callback, _ in compat.callbacks_of(task))


def _may_fail(callback: Any) -> bool:
    code, _, _ = compat.called_in(callback)
    return code is not None and is_application(code) and begun_may_fail(code)


def _names_of(hook: Any) -> tuple[str, ...]:
    code, _, _ = compat.called_in(hook)
    return () if code is None else code.co_names


def _is_own(hook: Any) -> bool:
    code, _, _ = compat.called_in(hook)
    return code is not None and is_application(code)
