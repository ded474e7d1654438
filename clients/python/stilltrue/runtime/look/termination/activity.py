"""What may still act in a process that declares itself idle: the look for termination and quiescence.

Rules:

1. The application's declaration covers what it started before its first call or its last ``idle()``: its own threads, timers
   and tasks. It does not cover the effects of messages: callbacks, what a handler left behind, threads started later.
2. A gRPC or executor thread inside application code is at work, except one that serves a recorded call and one that feeds a
   request stream (its call is outstanding). So is the main thread in an exit handler.
3. A thread started later, and the item of an executor, is at work unless it rests
   (:mod:`~stilltrue.runtime.look.termination.idle_positions`). So is an earlier thread or task that is elsewhere than at the
   declaration (on a queue that handlers feed, say), one that has since called by itself
   (:mod:`~stilltrue.runtime.look.termination.pollers`), and a thread that now runs a scheduler but did not then.
   An event loop of trio or Twisted is at work if it runs a task, or has more timers or descriptors to wait for than then.
4. A task or timer whose context comes from a finished handler was left behind by that handler, and an application task
   may have been started later by no known party: they are at work unless the task rests. (One that a handler has left does not
   rest where the application's own protocol or reader of a socket may wake it: it may wait for a peer.) A timer or callback
   counts if its code was not scheduled before (code scheduled before may reschedule itself), or if it was scheduled since and
   is a call on a channel or a library's method that makes others go on (``event.set``, ``thread.start``). Timers of HTTP and
   database libraries do not count, since they close idle connections, nor do the threads and tasks of the latter, which keep
   pools of connections: who waits for a connection counts itself.
5. Future callbacks of executors, alarms, timers in C and channels count too, and child processes started later, or at work
   since (:mod:`~stilltrue.runtime.look.termination.reactivation`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime import compat
from stilltrue.runtime.declared.idle_declaration import IdleDeclaration
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.introspection.origins import (
    acts_for_application,
    is_application,
    is_database_library,
    is_http_library,
    is_ours,
    position_of,
)
from stilltrue.runtime.introspection.tasks import Task, is_timed, woken_by_timers
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.termination import reactivation
from stilltrue.runtime.look.termination.idle_positions import has_own_code, is_elsewhere, is_task_elsewhere, rests, task_rests
from stilltrue.runtime.look.termination.pollers import is_poller, is_polling_task
from stilltrue.runtime.look.ways_out.kinds.wakers import socket_callbacks
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import LEFT_OUT

UNACCOUNTED_MAX = 20
_IN_EXECUTOR = "running an executor item"
_WATCHERS = tuple(
    f"/{name}/"
    for name in (
        *("opentelemetry", "prometheus_client", "sentry_sdk", "ddtrace", "newrelic", "elasticapm", "datadog"),
        *("pydevd", "pydevd_plugins", "debugpy", "_pydevd_bundle", "coverage", "viztracer", "pyinstrument"),
    )
)
"""Libraries that observe a program and send none of its messages."""


def unaccounted(places: Places, served: Iterable[ServerCall], covered: IdleDeclaration | None) -> tuple[str, ...]:
    """What may still act, as text. ``served``: the recorded calls; ``covered``: what the declaration covers."""
    known = {call.serial for call in served}
    found: dict[str, None] = {}
    for text in (
        *_acting_threads(places, known, covered),
        *_acting_on_loops(places, known, covered),
        *reactivation.alarms(places, covered),
        *reactivation.timers_in_c(covered),
        *reactivation.child_processes_at_work(places, covered),
    ):
        found[text] = None
        if len(found) >= UNACCOUNTED_MAX:
            break
    return tuple(found)


# -- threads -----------------------------------------------------------------------------------------------------------


def _acting_threads(places: Places, served: set[int], covered: IdleDeclaration | None) -> Iterator[str]:
    threads = compat.threads()
    foreign = {
        place.ident: loop for place in places.threads.values() if (loop := compat.foreign_loop(place.frames)) is not None
    }
    yield from _acting_foreign_loops(foreign, covered)
    for place in places.threads.values():
        own = [frame for frame in place.frames if _is_of_application(frame.f_code)]
        if place.ident == threading.get_ident() or place.ident in places.loop_threads or place.ident in foreign:
            continue
        thread = threads.get(place.ident)
        name = str(place.ident) if thread is None else thread.name
        if not own:
            if compat.is_timer_thread(thread, place.frames) and _is_started_since(thread, covered):
                yield f"thread {name}, a timer started after the idle declaration or the first call"
            yield from reactivation.executor_items(place)
            yield from reactivation.process_pools(place, covered)
            if _is_started_since(thread, covered):
                yield from reactivation.callbacks_of_child_processes(place)
                yield from reactivation.subscribers(place)
            continue
        how, since = _role_of(place, served), _change_since(thread, place, covered, places)
        if how == "" or (how in (None, _IN_EXECUTOR) and rests(place, places.threads)) or (how is None and _keeps_pool(own)):
            continue
        if thread is threading.main_thread() and not thread.is_alive():  # Python has run all of the program
            how = "in an exit handler"
        if how == _IN_EXECUTOR and covered is not None and not since and place.ident in covered.standing:
            continue
        if how or since:
            yield f"thread {name}, {how or f'{since} after the idle declaration or the first call'}: {position_of(own[0])}"


def _keeps_pool(own: Iterable[FrameType]) -> bool:
    """Whether a thread with these frames is one of a database library's own, which keeps a pool of connections (rule 4)."""
    return all(is_database_library(frame.f_code) for frame in own)


def _acting_foreign_loops(loops: Mapping[int, compat.ForeignLoop], covered: IdleDeclaration | None) -> Iterator[str]:
    for ident, loop in loops.items():
        if covered is not None and loop.is_at_work(covered.foreign_loops.get(ident)):
            yield f"an event loop of {loop.library}, with work since the idle declaration or the first call"


def _role_of(place: Place, served: set[int]) -> str | None:
    """For whom a thread runs application code (rule 2); empty if that is recorded, None for an application thread."""
    if place.serves is not None:
        return "" if place.party is None or place.serves.serial in served else "still serving a call that is over"
    inner = next(index for index, frame in enumerate(place.frames) if _is_of_application(frame.f_code))
    for frame in place.frames[inner:]:
        if compat.is_feeding(frame) or _is_left_out(frame):
            return ""
        if compat.is_grpc(frame.f_code.co_filename):
            return "in a gRPC callback"
        if compat.is_executor_code(frame.f_code) and place.ident != threading.main_thread().ident:  # not a worker process's
            return _IN_EXECUTOR
    return None


def _is_left_out(frame: FrameType) -> bool:
    """Whether gRPC serves an unrecorded call here (health, reflection)."""
    event = variables_of(frame).get("rpc_event") if compat.is_grpc(frame.f_code.co_filename) else None
    method = getattr(getattr(event, "call_details", None), "method", b"")
    return isinstance(method, bytes) and method.decode("utf-8", "replace").startswith(LEFT_OUT)


def _is_of_application(code: CodeType) -> bool:
    return is_application(code) and not any(name in code.co_filename for name in _WATCHERS)


def _change_since(thread: threading.Thread | None, place: Place, covered: IdleDeclaration | None, places: Places) -> str:
    """What happened to a thread since the declaration, as text (rule 3); empty if nothing is known."""
    if _is_started_since(thread, covered):
        return "started"
    if covered is None:
        return ""
    if is_elsewhere(place, covered):
        return "resumed"
    if thread is not threading.main_thread() and is_poller(thread, place, covered, places.first_acted):
        return "has called by itself"
    stood = covered.standing.get(place.ident)
    if not stood or not compat.is_timer_thread(None, place.frames) or thread is threading.main_thread():
        return ""
    return "" if any(code.co_filename == compat.SCHED_FILE for code, _ in stood) else "given a delayed job"


def _is_started_since(thread: threading.Thread | None, covered: IdleDeclaration | None) -> bool:
    """Whether a thread may have started after the declaration (rule 1)."""
    if thread is threading.main_thread() or covered is None:
        return False
    return thread is None or thread.native_id not in covered.threads


# -- event loops -------------------------------------------------------------------------------------------------------


def _acting_on_loops(places: Places, served: set[int], covered: IdleDeclaration | None) -> Iterator[str]:
    threads = {loop: ident for ident, loop in places.loop_threads.items()}
    for loop in places.loops():
        ident = threads.get(loop, 0)
        handles, tasks = compat.handles_of(loop), compat.tasks_of(loop)
        if handles is None or tasks is None:
            yield "an event loop whose timers and tasks cannot be read"
            continue
        yield from _acting_tasks(places, ident, tasks, served, covered, woken_by_timers(loop))
        yield from _acting_handles(places, handles, served, covered)
        frame = _called_by_loop(frames_of_thread(ident)) if ident and compat.current_task_of(loop) is None else None
        if frame is not None and compat.current_task_of(loop) is None:
            yield f"an event loop callback: {position_of(frame)}"


def _called_by_loop(frames: list[FrameType]) -> FrameType | None:
    """The innermost application frame called by a thread's event loop."""
    found = None
    for frame in frames:
        if compat.loop_in(frame) is not None:
            return found
        if found is None and _is_of_application(frame.f_code):
            found = frame
    return None


def _acting_tasks(
    places: Places,
    ident: int,
    tasks: list[Task],
    served: set[int],
    covered: IdleDeclaration | None,
    timed: frozenset[int],
) -> Iterator[str]:
    frames = places.threads[ident].frames if ident else ()  # of a loop that is run in pieces there are none between two
    main = next(filter(None, map(compat.main_task_in, frames)), None)
    for task in tasks:
        if _is_task_that_keeps_pool(task):
            continue
        root = _left_behind(places, task, served)
        how = ""
        if _is_at_work_since(places, task, covered, timed):
            how = "started since the first call"
        elif covered is not None and ref(task) in covered.tasks and _has_resumed(task, covered, timed, is_main=task is main):
            how = "resumed since the first call"
        elif covered is not None and task is not main and is_polling_task(task, covered, timed, places.first_acted):
            how = "has called by itself since the first call"
        elif root is not None and root.task is not task and not (compat.is_grpc_task(task) or _is_left_at_rest(task, timed)):
            how = f"left behind by {root.party}"
        if how:
            stack = places.of_task(task, None).stack()
            yield f"task {task.get_name()}, {how}: {stack[0] if stack else 'not started'}"


def _is_left_at_rest(task: Task, timed: frozenset[int]) -> bool:
    """Whether a task that a handler has left behind rests, and no callback of the application for a socket may wake it."""
    return task_rests(task, timed) and next(iter(socket_callbacks(task.get_loop())), None) is None


def _is_task_that_keeps_pool(task: Task) -> bool:
    """The same for a task, at whose end no function of the application is called."""
    codes = [code for one in compat.await_chain(task.get_coro()) if (code := compat.code_of(one)) and _is_of_application(code)]
    at_end = compat.item_callbacks(task)
    return bool(codes) and all(map(is_database_library, codes)) and not any(map(acts_for_application, at_end))


def _is_at_work_since(places: Places, task: Task, covered: IdleDeclaration | None, timed: frozenset[int]) -> bool:
    """Whether a task was started later by no known party and does not wait for another party (rule 4).

    ``timed``: the tasks and futures that timers wake.
    """
    if covered is None or ref(task) in covered.tasks:
        return False
    if task_rests(task, timed) if has_own_code(task) else _awaits_others(task, timed):
        return False
    code, context = compat.code_of(compat.coroutine_of(task)), compat.context_of(task)
    by_nobody = context is None or context.get(places.root) is None
    return by_nobody and code is not None and _is_of_application(code)


def _awaits_others(task: Task, timed: frozenset[int]) -> bool:
    """Whether a package's own task waits for another party: for its peer, say."""
    return compat.task_waits_at(task) is not None and not is_timed(task, timed)


def _has_resumed(task: Task, covered: IdleDeclaration, timed: frozenset[int], *, is_main: bool) -> bool:
    """Whether an earlier task has gone on since (rule 3)."""
    return has_own_code(task) and is_task_elsewhere(task, covered, timed, is_main=is_main) and not task_rests(task, timed)


def _acting_handles(
    places: Places, handles: list[asyncio.Handle], served: set[int], covered: IdleDeclaration | None
) -> Iterator[str]:
    for handle in handles:
        callback, _ = compat.callback_of(handle)
        code, _, _ = compat.code_behind(callback)
        if compat.belongs_to_task(callback) or (code is not None and is_ours(code) and not acts_for_application(callback)):
            continue
        root = _left_behind(places, handle, served)
        if code is not None and (is_http_library(code) or is_database_library(code)):
            continue
        if root is not None:
            yield f"{compat.name_of(callback)}, scheduled by {root.party}"
        elif _is_new_on_loop(places, handle, callback, covered):
            yield f"{compat.name_of(callback)}, scheduled on an event loop since the first call"


def _is_new_on_loop(places: Places, handle: asyncio.Handle, callback: Any, covered: IdleDeclaration | None) -> bool:
    """Whether the application, by no known party, scheduled code that was not scheduled before (rule 4)."""
    context = compat.context_of(handle)
    by_nobody = context is None or context.get(places.root) is None
    if covered is None or not by_nobody:
        return False
    code, _, _ = compat.code_behind(callback)
    if code is not None and is_application(code):
        return _is_of_application(code) and code not in covered.scheduled
    return acts_for_application(callback) and not covered.covers(handle)  # ``event.set``, ``thread.start``


def _left_behind(places: Places, thing: object, served: set[int]) -> Root | None:
    """The finished handler in whose context a task or timer runs."""
    context = compat.context_of(thing)
    root = None if context is None else context.get(places.root)
    return root if root is not None and root.served.serial not in served else None
