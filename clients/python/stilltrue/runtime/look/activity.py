"""What may still act in a process that owes nothing by its own account: the look of termination and quiescence.

Rules:

1. The application's declaration covers what it had started before its first call, or its last ``idle()``: its own threads,
   timers and tasks. It does not cover what came of messages: callbacks, what a handler left behind, threads started since.
2. A thread of gRPC's, or of an executor, that is inside the application's code is at work, but for one that serves a call which
   the record has (it is known), and one that feeds a request stream (its call is outstanding).
3. A thread that was started since is at work unless it waits with no timeout of its own; so is one that waited for others
   at the first call, or read something, and has been woken, and a task likewise: on a queue, say, that handlers feed; and one
   that is in a scheduler, and was in none.
4. A task or timer whose context comes from a handler that has ended was left behind by it. A task of the application's that
   was started since, by nobody known, is at work unless it waits until somebody else acts, and no timer wakes it; a timer or
   callback counts whose code was not scheduled before (one that was may schedule itself anew). A library of HTTP closes idle
   connections so.
5. What executors, child processes, alarms and channels will call later counts as well (:mod:`~stilltrue.runtime.look.to_come`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from weakref import ref

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime import compat
from stilltrue.runtime.declared.word import Word
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_http, is_ours, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task, blocking_future, woken_by_timers
from stilltrue.runtime.look.code.ahead import names_at
from stilltrue.runtime.look.to_come import of_alarms, of_children, of_items, of_results, of_subscribers
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import LEFT_OUT

UNACCOUNTED_MAX = 20
_READING = frozenset(
    {"read", "readinto", "readline", "recv", "recv_into", "recvfrom", "recvmsg", "accept", "select", "poll", "get"}
)
"""What a thread calls that is not Python, and returns when something has come: of files, sockets, ``SimpleQueue``."""
_WATCHERS = tuple(
    f"/{name}/"
    for name in (
        *("opentelemetry", "prometheus_client", "sentry_sdk", "ddtrace", "newrelic", "elasticapm", "datadog"),
        *("pydevd", "pydevd_plugins", "debugpy", "_pydevd_bundle", "coverage", "viztracer", "pyinstrument"),
    )
)
"""Libraries that watch a program and send none of its messages."""


def unaccounted(places: Places, served: Iterable[ServerCall], covered: Word | None) -> tuple[str, ...]:
    """What may still act, as text; ``served``: the recorded calls, ``covered``: what the declaration covers."""
    known = {call.serial for call in served}
    found: dict[str, None] = {}
    for text in (*_threads(places, known, covered), *_on_loops(places, known, covered), *of_alarms(places, covered)):
        found[text] = None
        if len(found) >= UNACCOUNTED_MAX:
            break
    return tuple(found)


# -- threads -----------------------------------------------------------------------------------------------------------


def _threads(places: Places, served: set[int], covered: Word | None) -> Iterator[str]:
    threads = compat.threads()
    for place in places.threads.values():
        own = [frame for frame in place.frames if _is_of_application(frame.f_code)]
        if place.ident == threading.get_ident() or place.ident in places.loop_threads:
            continue
        thread = threads.get(place.ident)
        name = str(place.ident) if thread is None else thread.name
        if not own:
            if compat.is_timer_thread(thread, place.frames) and _is_young(thread, covered):
                yield f"thread {name}, a timer that was set since it said that it is idle, or since the first call"
            yield from of_items(place)
            yield from of_results(place)
            if _is_young(thread, covered):
                yield from of_children(place)
                yield from of_subscribers(place)
            continue
        how = _how_it_acts(place, served)
        if how:
            yield f"thread {name}, {how}: {position_of(own[0])}"
        elif how is None and not _waits_for_ever(place.frames) and (since := _since(thread, place, covered)):
            yield f"thread {name}, {since} since it said that it is idle, or since the first call: {position_of(own[0])}"


def _how_it_acts(place: Place, served: set[int]) -> str | None:
    """In whose stead a thread runs the application's code (rule 2); empty if that is known, None if it is its own thread."""
    if place.serves is not None:
        return "" if place.party is None or place.serves.serial in served else "still in the service of a call that is over"
    inner = next(index for index, frame in enumerate(place.frames) if _is_of_application(frame.f_code))
    for frame in place.frames[inner:]:
        if compat.is_feeding(frame) or _is_left_out(frame):
            return ""
        if compat.is_grpc(frame.f_code.co_filename):
            return "a callback of gRPC's"
        if compat.is_executor_code(frame.f_code) and place.ident != threading.main_thread().ident:  # that of a worker process
            return "at work for an executor"
    return None


def _is_left_out(frame: FrameType) -> bool:
    """Whether gRPC serves a call here that is never recorded (health, reflection)."""
    event = variables_of(frame).get("rpc_event") if compat.is_grpc(frame.f_code.co_filename) else None
    method = getattr(getattr(event, "call_details", None), "method", b"")
    return isinstance(method, bytes) and method.decode("utf-8", "replace").startswith(LEFT_OUT)


def _is_of_application(code: CodeType) -> bool:
    return is_application(code) and not any(name in code.co_filename for name in _WATCHERS)


def _since(thread: threading.Thread | None, place: Place, covered: Word | None) -> str:
    """What happened to a thread since the declaration, as text (rule 3); empty if nothing is known."""
    if _is_young(thread, covered):
        return "started"
    if covered is None or thread is threading.main_thread():
        return ""
    before, stood = covered.waiting.get(place.ident), covered.standing.get(place.ident)
    if before is not None:
        return "woken" if compat.waits_at(place.frames[0]) != before else ""
    if not stood or stood == compat.where_of(place.frames[0]):
        return ""
    if compat.is_timer_thread(None, place.frames) and not any(code.co_filename == compat.SCHED_FILE for code, _ in stood):
        return "given something to do later,"
    return "woken" if not _READING.isdisjoint(names_at(*stood[0])) else ""


def _is_young(thread: threading.Thread | None, covered: Word | None) -> bool:
    """Whether a thread may have been started since the declaration (rule 1)."""
    if thread is threading.main_thread() or covered is None:
        return False
    return thread is None or thread.native_id not in covered.threads


def _waits_for_ever(frames: tuple[FrameType, ...]) -> bool:
    """Whether a thread waits for another, and no timeout of its own will wake it."""
    return compat.is_endless_wait(frames[0])


# -- event loops -------------------------------------------------------------------------------------------------------


def _on_loops(places: Places, served: set[int], covered: Word | None) -> Iterator[str]:
    for ident, loop in places.loop_threads.items():
        handles, tasks = compat.handles_of(loop), compat.tasks_of(loop)
        if handles is None or tasks is None:
            yield "an event loop whose timers and tasks cannot be read"
            continue
        yield from _tasks(places, tasks, served, covered, woken_by_timers(loop))
        yield from _handles(places, handles, served, covered)
        frame = None if compat.current_task_of(loop) is not None else _called_by_loop(frames_of_threads().get(ident, []))
        if frame is not None and compat.current_task_of(loop) is None:
            yield f"a callback of an event loop: {position_of(frame)}"


def _called_by_loop(frames: list[FrameType]) -> FrameType | None:
    """The innermost frame of the application that the event loop of a thread has called."""
    found = None
    for frame in frames:
        if compat.loop_in(frame) is not None:
            return found
        if found is None and _is_of_application(frame.f_code):
            found = frame
    return None


def _tasks(places: Places, tasks: list[Task], served: set[int], covered: Word | None, timed: frozenset[int]) -> Iterator[str]:
    waited = {} if covered is None else covered.waiting_tasks
    for task in tasks:
        root = _left_behind(places, task, served)
        how = ""
        if _is_at_work_since(places, task, covered, timed):
            how = "started since the first call"
        elif root is not None and root.task is not task and not compat.is_grpc_task(task):
            how = f"left behind by {root.party}"
        elif (before := waited.get(ref(task))) is not None and compat.task_waits_at(task) != before:
            how = "woken since the first call"
        if how:
            stack = places.of_task(task, None).stack()
            yield f"task {task.get_name()}, {how}: {stack[0] if stack else 'not begun'}"


def _is_at_work_since(places: Places, task: Task, covered: Word | None, timed: frozenset[int]) -> bool:
    """Whether a task was started since by nobody known, and does not wait until somebody else acts (rule 4).

    ``timed``: what timers wake.
    """
    if covered is None or ref(task) in covered.tasks:
        return False
    if compat.task_waits_at(task) is not None and timed.isdisjoint((id(task), id(blocking_future(task)))):
        return False
    code, context = compat.code_of(task.get_coro()), compat.context_of(task)
    by_nobody = context is None or context.get(places.root) is None
    return by_nobody and code is not None and _is_of_application(code)


def _handles(places: Places, handles: list[asyncio.Handle], served: set[int], covered: Word | None) -> Iterator[str]:
    for handle in handles:
        callback, _ = compat.called_by(handle)
        code, _, _ = compat.called_in(callback)
        if compat.is_of_a_task(callback) or (code is not None and is_ours(code)):
            continue
        root = _left_behind(places, handle, served)
        if root is not None:
            yield f"{compat.name_of(callback)}, scheduled by {root.party}"
        elif code is not None and _is_new_on_loop(places, handle, code, covered):
            yield f"{compat.name_of(callback)}, scheduled on an event loop since the first call"


def _is_new_on_loop(places: Places, handle: asyncio.Handle, code: CodeType, covered: Word | None) -> bool:
    """Whether the application has scheduled something since that was not scheduled before, by nobody known (rule 4)."""
    context = compat.context_of(handle)
    by_nobody = context is None or context.get(places.root) is None
    if covered is None or not by_nobody:
        return False
    return _is_of_application(code) and not is_of_http(code) and code not in covered.scheduled


def _left_behind(places: Places, thing: object, served: set[int]) -> Root | None:
    """The handler that has ended in whose context a task or timer runs."""
    context = compat.context_of(thing)
    root = None if context is None else context.get(places.root)
    return root if root is not None and root.served.serial not in served else None
