"""Reads private parts of asyncio's event loops: timers, callbacks, descriptors, and which frames run a loop."""

from __future__ import annotations

import asyncio
import asyncio.base_subprocess
import asyncio.subprocess
import concurrent.futures
import gc
import selectors
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.compat.callables import (
    COMPILED_FUNCTIONS,
    Task,
    bound_to,
    code_behind,
    is_function,
    is_of_asyncio,
    module_of,
)
from stilltrue.runtime.compat.http_servers import closes_idle_connection
from stilltrue.runtime.compat.loops import uvloops
from stilltrue.runtime.compat.loops.uvloop_frames import is_uvloop_main_task, uvloop_in
from stilltrue.runtime.compat.tasks import CHAIN_LENGTH_MAX, is_task, known_tasks, tasks_of
from stilltrue.runtime.introspection.frames import frames_of_threads, no_collection, variables_of

_ATTEMPTS = 10
_ASYNCIO = str(Path(asyncio.__file__).parent)
_BACKPORTED = str(Path("-packages", "backports", "asyncio", "runner", ""))
"""``asyncio.Runner`` for Python 3.10, which pytest-asyncio brings along."""
_STEP: CodeType = asyncio.Handle._run.__code__  # noqa: SLF001 - what a loop runs
_OF_POLICY = frozenset({"_loop", "_set_called"})
"""The attributes that ``set_event_loop()`` sets for a thread."""
_OF_TASKS = frozenset({"_set_result_unless_cancelled", "_release_waiter", "_on_timeout"})


def callbacks_of(future: Any) -> list[tuple[Any, Any]]:
    """The done callbacks of a future or task, each with its context.

    Up to Python 3.11, asyncio's compiled future counts its callbacks and then allocates a list for them. If a collection runs a
    finalizer in between that adds or removes one, or lets the loop do so, memory is corrupted.
    """
    with no_collection:
        return list(getattr(future, "_callbacks", None) or ())


def callbacks_after(future: Any) -> list[tuple[Any, Any]]:
    """The application's callbacks at the end of a future or task, and of the futures that asyncio completes then.

    Each with its context. Such futures are those of ``gather``, ``shield``, ``wrap_future`` and ``run_in_executor``.
    """
    found: list[tuple[Any, Any]] = []
    seen: dict[int, Any] = {}
    todo = [future]
    while todo and len(seen) < CHAIN_LENGTH_MAX:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        callbacks = [(each, None) for each in list(getattr(one, "_done_callbacks", None) or ())]
        for callback, context in callbacks or callbacks_of(one):
            if is_asyncio_internal(callback):
                todo += (each for each in bound_to(callback) if _is_plain_future(each))
            else:
                found.append((callback, context))
    return found


def _is_plain_future(thing: Any) -> bool:
    kind = type(thing)
    return issubclass(kind, asyncio.Future | concurrent.futures.Future) and not issubclass(kind, asyncio.Task)


def handles_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle] | None:
    """The timers and ready callbacks of ``loop``; None if the loop does not expose them.

    Timers that only close idle connections are left out.
    """
    handles = _every_handle_of(loop)
    return None if handles is None else [one for one in handles if not closes_idle_connection(callback_of(one)[0])]


def _every_handle_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle] | None:
    if uvloops.is_uvloop(loop):
        later, soon = uvloops.timers_of(loop), uvloops.ready_of(loop)
        return None if later is None or soon is None else [*later, *soon]
    scheduled, ready = getattr(loop, "_scheduled", None), getattr(loop, "_ready", None)
    if scheduled is None or ready is None:
        return None
    for _ in range(_ATTEMPTS):
        try:
            return [handle for handle in (*list(scheduled), *list(ready)) if not handle.cancelled()]
        except RuntimeError:  # the deque changed during the read
            continue
    return None


def ready_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle]:
    """The callbacks that one of asyncio's own loops is to run next; none if it does not show them."""
    ready = getattr(loop, "_ready", None)
    with suppress(RuntimeError):  # it changed during the read
        return [] if type(ready) is not deque else [one for one in list(ready) if not one.cancelled()]
    return []


def timers_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.TimerHandle] | None:
    """The active timers of ``loop``; None if the loop does not expose them."""
    if uvloops.is_uvloop(loop):
        return uvloops.timers_of(loop)
    scheduled = getattr(loop, "_scheduled", None)
    return None if scheduled is None else [handle for handle in list(scheduled) if not handle.cancelled()]


def descriptors_of(loop: asyncio.AbstractEventLoop) -> list[int]:
    """The descriptors that ``loop`` polls; empty if they cannot be read."""
    if uvloops.is_uvloop(loop):
        return uvloops.descriptors_of(loop)
    watched = getattr(getattr(loop, "_selector", None), "_fd_to_key", None)
    return list(watched) if isinstance(watched, dict) else []


def watched_by(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle]:
    """The callbacks registered with ``add_reader`` and ``add_writer``."""
    if uvloops.is_uvloop(loop):
        return uvloops.watched_by(loop)
    watched = getattr(getattr(loop, "_selector", None), "_fd_to_key", None)
    keys = list(watched.values()) if isinstance(watched, dict) else []
    handles = (one for key in keys for one in (key.data if isinstance(key.data, tuple) else ()))
    return [one for one in handles if isinstance(one, asyncio.Handle) and not one.cancelled()]


def signal_handlers_of(loop: asyncio.AbstractEventLoop) -> dict[int, asyncio.Handle]:
    """The callbacks registered with ``add_signal_handler``, by signal number."""
    found = getattr(loop, "_signal_handlers", None)
    return uvloops.signal_handlers_of(loop) if uvloops.is_uvloop(loop) else dict(found) if isinstance(found, dict) else {}


def exception_handler_of(loop: asyncio.AbstractEventLoop) -> Any:
    """The exception handler set on ``loop``, or None."""
    return loop.get_exception_handler() if uvloops.is_uvloop(loop) else getattr(loop, "_exception_handler", None)


def protocols_of(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """The protocols that receive the socket and pipe events of ``loop``."""
    if uvloops.is_uvloop(loop):
        protocols = uvloops.protocols_of(loop)
    else:
        watching = [callback_of(one) for one in watched_by(loop)]
        transports = [getattr(called, "__self__", None) for called, _ in watching]
        # those of child processes
        given_to_watchers = [*(given for _, given in watching), *_given_to_child_watchers(loop)]
        transports += [one for given in given_to_watchers for held in given if type(held) is tuple for one in held]
        transports += list(getattr(loop, "_transports", {}).copy().values())
        protocols = [getattr(one, "_protocol", None) for one in transports if issubclass(type(one), asyncio.BaseTransport)]
        protocols += [getattr(one, "_app_protocol", None) for one in protocols]
    return list({id(one): one for one in protocols if one is not None}.values())


def factories_of(loop: asyncio.AbstractEventLoop) -> list[Any] | None:
    """The functions that make the protocols of connections to come; None if they are not shown."""
    if uvloops.is_uvloop(loop):
        return uvloops.factories_of(loop)
    return [one for handle in watched_by(loop) for one in callback_of(handle)[1] if callable(one)]


def _given_to_child_watchers(loop: asyncio.AbstractEventLoop) -> list[tuple[Any, ...]]:
    """What the threads were given in which asyncio waits for the end of child processes of ``loop``, until Python 3.11."""
    every = list(threading._active.values())  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    given = [getattr(one, "_args", ()) for one in every if "waitpid-" in one.name]
    return [one for one in given if type(one) is tuple and loop in one]


def callback_of(handle: asyncio.Handle) -> tuple[Any, tuple[Any, ...]]:
    """The callback of a handle, and its arguments."""
    return getattr(handle, "_callback", None), tuple(getattr(handle, "_args", None) or ())


def context_of(handle_or_task: Any) -> Context | None:
    """The context in which a task, timer or callback runs."""
    if isinstance(handle_or_task, asyncio.Handle):
        found: Context | None = getattr(handle_or_task, "_context", None)
        return found
    read = getattr(handle_or_task, "get_context", None)  # since Python 3.12
    if read is not None:
        context: Context = read()
        return context
    return next((one for one in gc.get_referents(handle_or_task) if type(one) is Context), None)


def tasks_of_all_loops() -> list[Task]:
    """The unfinished tasks of all running loops, and of those that are not closed and may run again."""
    loops = {loop for frames in frames_of_threads().values() for one in frames if (loop := loop_in(one)) is not None}
    others = {loop for task in known_tasks() if (loop := task.get_loop()) not in loops and not loop.is_closed()}
    return [task for loop in (*loops, *others) for task in tasks_of(loop) or ()]


def is_stopped_loop(thing: Any) -> bool:
    """Whether it is one of asyncio's own event loops, and no thread runs it."""
    return type(thing) is asyncio.SelectorEventLoop and not thing.is_running()


def is_current_loop_of_thread(holder: Any, thing: Any) -> bool:
    """Whether ``holder`` has the attributes of some thread in asyncio's policy, which has ``thing`` as the thread's loop."""
    return type(holder) is dict and holder.keys() == _OF_POLICY and holder.get("_loop") is thing


def handles_of_running_loops() -> list[asyncio.Handle]:
    """The timers and ready callbacks of all running loops."""
    loops = {loop for frames in frames_of_threads().values() for one in frames if (loop := loop_in(one)) is not None}
    return [handle for loop in loops for handle in handles_of(loop) or ()]


_RUNNER_RUN = asyncio.Runner.run.__code__ if sys.version_info >= (3, 11) else None


def loop_in(frame: FrameType) -> asyncio.AbstractEventLoop | None:
    """The event loop that this frame runs, or None."""
    code = frame.f_code
    if code is _RUNNER_RUN:
        loop = getattr(variables_of(frame).get("self"), "_loop", None)
        if isinstance(getattr(type(loop), "run_forever", None), FunctionType):
            return None  # the loop has its own frame; only uvloop's has none
    elif code.co_name == "run_forever":
        loop = variables_of(frame).get("self")
    else:
        return uvloop_in(frame)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def loops_in(frames: Iterable[FrameType]) -> list[tuple[int, asyncio.AbstractEventLoop]]:
    """Those of these frames that run an event loop, by index, each with its loop."""
    found = []
    may_be_compiled = "uvloop.loop" in sys.modules
    for at, frame in enumerate(frames):
        code = frame.f_code
        if may_be_compiled or code is _RUNNER_RUN or code.co_name == "run_forever":
            loop = loop_in(frame)
            if loop is not None:
                found.append((at, loop))
    return found


def main_task_in(frame: FrameType) -> Any:
    """The task until whose end the loop in this frame runs; None if it runs for ever or the task is unknown."""
    if is_loop_code(frame.f_code) and frame.f_code.co_name == "run_until_complete":
        return variables_of(frame).get("future")
    loop = loop_in(frame)
    if loop is None or not uvloops.is_uvloop(loop):
        return None
    return next(filter(is_uvloop_main_task, tasks_of(loop) or ()), None)


def asyncio_run_task(frames: Iterable[FrameType]) -> Task | None:
    """The main task of ``asyncio.run`` in a thread with these frames; when it ends, all other tasks are cancelled."""
    task = None
    for frame in frames:
        task = main_task_in(frame) or task
        if is_loop_code(frame.f_code) and qualname_of(frame.f_code) == "run":
            return task if is_task(task) else None
    return None


def loop_of_runner(thing: Any) -> asyncio.AbstractEventLoop | None:
    """The loop of an ``asyncio.Runner``, all of whose tasks are cancelled when the runner is closed; None for anything else."""
    kind = type(thing)
    if kind.__name__ != "Runner" or not is_loop_file(getattr(sys.modules.get(module_of(kind)), "__file__", "")):
        return None
    loop = getattr(thing, "_loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def is_asyncio(callback: Any) -> bool:
    """Whether a callback is asyncio's own. Those only wake waiters, which are found in other ways."""
    code, _, _ = code_behind(callback)
    if code is not None:
        return is_loop_code(code)
    return is_of_asyncio(type(callback)) or (type(callback) in COMPILED_FUNCTIONS and "wakeup" in callback.__name__)


def is_asyncio_internal(callback: Any) -> bool:
    """As :func:`is_asyncio`, without the public methods that the application passes: ``event.set``, ``task.cancel``."""
    name = getattr(callback, "__name__", "_")
    return is_asyncio(callback) and (name.startswith("_") or "wakeup" in name)


def is_from_application(callback: Any) -> bool:
    """Whether the application wrote or passed a callback; also a compiled method such as ``task.cancel``."""
    if is_asyncio(callback):
        return not is_asyncio_internal(callback)
    return is_function(callback) or (type(callback) in COMPILED_FUNCTIONS and bool(bound_to(callback)))


def belongs_to_task(callback: Any) -> bool:
    """Whether a scheduled callback is a task's own: its next step, the end of its sleep, or its timeout."""
    if any(is_task(one) for one in bound_to(callback)):
        return True
    code, _, _ = code_behind(callback)
    return code is not None and is_loop_code(code) and code.co_name in _OF_TASKS


def is_loop_step(code: CodeType) -> bool:
    """Whether this is the code in which a loop runs one callback or one step of a task."""
    return code is _STEP


def is_running_loop(code: CodeType) -> bool:
    """Whether this code runs an event loop, waits for its sockets, or dispatches their events."""
    return is_loop_code(code) or code.co_filename == selectors.__file__


def is_loop_code(code: CodeType) -> bool:
    """Whether this is asyncio's own code, or its backport's."""
    return is_loop_file(code.co_filename)


def is_loop_file(name: str) -> bool:
    """Whether this is a file of asyncio or of its backport."""
    return name.startswith(_ASYNCIO) or _BACKPORTED in name
