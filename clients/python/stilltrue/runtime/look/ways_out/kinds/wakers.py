"""Code that may wake another party or set a flag: ahead of a thread or task, or in a callback."""

from __future__ import annotations

import asyncio
import functools
import queue
import signal
import sys
import threading
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.linux.own_timers import sends_sigio
from stilltrue.runtime.introspection.origins import (
    is_application,
    is_application_callback,
    is_database_library,
    is_http_library,
    is_ours,
    is_own_code,
)
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.called_code.call_graph import named_ahead, named_by_callback, names_in
from stilltrue.runtime.look.called_code.indirect_calls import LOGGING, callables_behind, callables_kept, functions_behind
from stilltrue.runtime.look.code.attributes import inherited, named_values
from stilltrue.runtime.look.code.names import mentioned_in, names_stored_in
from stilltrue.runtime.look.progress.flags import Flag
from stilltrue.runtime.look.progress.stack_ahead import Stretch
from stilltrue.runtime.look.ways_out.actor_code import own_reached_by, own_reached_from
from stilltrue.runtime.waits.ending_operations import (
    ACKNOWLEDGING,
    AT_BARRIERS,
    COMPLETING,
    COMPLETING_OR_CANCELLING,
    NOTIFYING,
    PUTTING,
    RELEASE,
    SETTING,
    TAKING,
)

_WAKING = frozenset(
    {"close", "aclose", "stop", "shutdown", "abort", "call_soon_threadsafe"}.union(
        SETTING, NOTIFYING, RELEASE, PUTTING, TAKING, ACKNOWLEDGING, COMPLETING_OR_CANCELLING
    )
)
_OF_QUEUES = PUTTING | TAKING | ACKNOWLEDGING
_WAKING_OF: dict[type, frozenset[str]] = {
    threading.Event: SETTING,
    asyncio.Event: SETTING,
    threading.Condition: NOTIFYING,
    asyncio.Condition: NOTIFYING,
    queue.Queue: PUTTING,
    asyncio.Queue: PUTTING,
    asyncio.Future: COMPLETING,
}
_COMPILED_SETTERS = frozenset(
    {"setattr", "delattr", "setitem", "delitem", "__setattr__", "__delattr__", "__setitem__", "__delitem__"}
    | {"update", "clear", "pop", "popitem", "setdefault", "append", "extend", "insert", "remove"}
)
_BARRIERS = (threading.Barrier, *compat.BARRIERS)
_CALLED_MAX = 20
Callback = tuple[Any, tuple[Any, ...]]
"""A callable and its arguments."""


def waking_names(what: Collection[Any]) -> frozenset[str]:
    """The names of operations that wake a waiter for one of ``what``."""
    if all(issubclass(type(one), threading.Event | asyncio.Event) for one in what):
        return _WAKING - _OF_QUEUES
    listener = getattr(sys.modules.get("logging.handlers"), "QueueListener", ())
    if any(issubclass(type(one), listener) for one in what):
        return _WAKING | LOGGING | {"handle"}  # through a QueueHandler
    return _WAKING | AT_BARRIERS if any(issubclass(type(one), _BARRIERS) for one in what) else _WAKING


def waking_names_far_away(what: Iterable[Any]) -> frozenset[str]:
    """Those by which just these objects wake, for functions far from the code that is ahead."""
    kinds = [type(one) for one in what]
    return frozenset().union(*(names for one, names in _WAKING_OF.items() if any(issubclass(kind, one) for kind in kinds)))


def may_wake(stretch: Stretch, waking: frozenset[str], far: frozenset[str] = frozenset()) -> bool:
    """Whether the code ahead may wake another party: mentions ``waking`` names, or one of ``far`` in a function far away."""
    ahead, names = stretch.ahead, variables_of(stretch.frame)
    if not ahead.known or not waking.isdisjoint(ahead.mentioned):
        return True
    near = named_values(ahead.variables, ChainMap(names, stretch.frame.f_globals), ahead.attributes)
    if any(_function_may_wake(one, waking) for one in _callables(stretch, names)) or _kept(near, ahead.attributes, waking):
        return True
    if any(not waking.isdisjoint(mentioned_in(code)) for code, _ in named_ahead(ahead, stretch.frame)):
        return True
    if not far:
        return False
    called = list(named_ahead(ahead, stretch.frame))
    if any(not far.isdisjoint(mentioned_in(code)) or _kept_by(code, others, far) for code, others in called):
        return True
    within = frozenset().union(*map(names_in, ahead.functions))
    return not far.isdisjoint(own_reached_from(stretch.frame, ahead, within).names)


def _kept(things: Iterable[Any], words: frozenset[str], waking: frozenset[str]) -> bool:
    """Whether a table, an enum or an attribute among these objects holds a library's method that wakes (``event.set``).

    The application's own functions there are among those that the code names.
    """
    kept = [one.func if type(one) is functools.partial else one for one in callables_kept(things, words)]
    return any(compat.name_of(one).rsplit(".", 1)[-1] in waking and not is_application_callback(one) for one in kept)


def _kept_by(code: CodeType, others: dict[str, Any], waking: frozenset[str]) -> bool:
    """The same for the globals ``others`` that a function of the program's own names."""
    words = names_in(code)
    return is_own_code(code) and _kept(named_values(words, others), words, waking)


def _function_may_wake(function: Any, waking: frozenset[str]) -> bool:
    code, _, _ = compat.code_behind(function)
    if code is None:
        return compat.name_of(function).rsplit(".", 1)[-1] in waking
    return code.co_name in waking or not waking.isdisjoint(mentioned_in(code))


def callback_may_wake(callback: Any, waking: frozenset[str]) -> bool:
    """Whether a callback, or the program's own code that it calls, mentions ``waking`` names."""
    return _function_may_wake(callback, waking) or not waking.isdisjoint(own_reached_by(callback).names)


def frames_in_packages(frames: Iterable[FrameType]) -> list[FrameType]:
    """The innermost frames of a thread that runs code of an installed package: up to one of the program's own, or of a loop."""
    return list(takewhile(_is_of_package, frames))


def _is_of_package(frame: FrameType) -> bool:
    code = frame.f_code
    return not (is_own_code(code) or is_http_library(code) or compat.is_loop_code(code))


def callbacks_of_library(frames: Iterable[FrameType]) -> Iterator[Callback]:
    """The functions that the library code of some frames was given to call: a scheduler's jobs, a watcher's handlers.

    It was not given its own methods of its own object, such as the handler of SIGINT in the frame of asyncio's runner. Nor was
    a library for databases given the thousands of functions of such libraries: these are among those that its frames name.
    """
    found: dict[tuple[int, int], Any] = {}
    for frame in frames:
        if not is_own_code(frame.f_code) and not is_ours(frame.f_code):
            names = variables_of(frame)
            to_database = is_database_library(frame.f_code)
            for one in (one for held in names.values() for one in callables_behind(held)):
                if not _is_library_method_of(names.get("self"), one) and not (to_database and _is_of_databases(one)):
                    found[id(getattr(one, "__func__", one)), id(getattr(one, "__self__", None))] = one
    yield from ((one, ()) for one in found.values())


def _is_of_databases(function: Any) -> bool:
    code, _, _ = compat.code_behind(function)
    return code is not None and is_database_library(code)


def given_to_package(callback: Any) -> list[Any]:
    """What a scheduled method of an installed package's object may call: the jobs of a scheduler on an event loop."""
    code, _, owner = compat.code_behind(callback)
    if code is None or owner is None or not is_application(code) or is_own_code(code) or is_http_library(code):
        return []
    return [one for one in callables_behind(owner) if not _is_library_method_of(owner, one)]


def given_to_timer(timer: threading.Timer) -> list[Any]:
    """What a library's function that a timer will call may call in turn: the subscriber of an interval of RxPY."""
    carried = compat.thread_arguments(timer)
    code, _, _ = compat.code_behind(carried[0]) if carried else (None, {}, None)
    if code is None or not is_application(code) or is_own_code(code) or is_http_library(code):
        return []
    return [one for held in compat.bound_to(carried[0]) for one in functions_behind(held)]


def _is_library_method_of(owner: Any, function: Any) -> bool:
    while type(function) is functools.partial:
        function = function.func
    if type(function) is not MethodType or function.__self__ is not owner:
        return False
    code = getattr(function.__func__, "__code__", None)
    return code is not None and not is_own_code(code)


Stored = tuple[tuple[frozenset[str], CodeType, dict[str, Any]], ...] | None
"""The names that some code sets, by code object, with its globals; None: it may set any."""


def may_set(stored: Stored, flag: Flag) -> bool:
    """Whether code may set one of the flag's names."""
    return stored is None or any(_stores_flag(names, code, others, flag) for names, code, others in stored)


def stored_ahead(stretch: Stretch) -> Stored:
    """What the code ahead may set."""
    ahead, frame = stretch.ahead, stretch.frame
    if not ahead.known:
        return None
    called = [stored_by((one, ())) for one in _callables(stretch, variables_of(frame))]
    if None in called:
        return None
    own = (ahead.stored, frame.f_code, frame.f_globals)
    named = ((names_stored_in(code), code, others) for code, others in named_ahead(ahead, frame))
    return _each_once((own, *(one for every in called for one in every or ()), *named))


def _each_once(every: Iterable[tuple[frozenset[str], CodeType, dict[str, Any]]]) -> Stored:
    return tuple({(names, id(code), id(others)): (names, code, others) for names, code, others in every if names}.values())


def _callables(stretch: Stretch, names: dict[str, Any]) -> list[Any]:
    """Callable variables that are still ahead, to be called or passed on."""
    return [one for name in stretch.ahead.variables if name in names and callable(one := names[name])]


def stored_by(callback: Callback) -> Stored:
    """What a callback may set; compiled code that is there to set something may set anything."""
    todo, seen = [callback], set[int]()
    found: list[tuple[frozenset[str], CodeType, dict[str, Any]]] = []
    while todo and len(seen) < _CALLED_MAX:
        function, arguments = todo.pop()
        if id(function) in seen:  # a timer's function may hold itself to be rescheduled
            continue
        seen.add(id(function))
        code, others, _ = compat.code_behind(function)
        near = (*compat.bound_to(function), *arguments)
        if code is not None:
            every = ((code, others), *named_by_callback(function, arguments))
            found += ((names_stored_in(one), one, space) for one, space in every)
        elif compat.name_of(getattr(function, "func", function)).rsplit(".", 1)[-1] in _COMPILED_SETTERS:
            return None
        todo += [(one, ()) for one in near if compat.is_function(one)]
    return None if todo else _each_once(found)


def _stores_flag(stored: frozenset[str], code: CodeType, others: dict[str, Any], flag: Flag) -> bool:
    """``others``: the globals of ``code``."""
    if "*" in stored:
        return True
    if stored.isdisjoint(flag.names):
        return False
    return flag.file in ("", code.co_filename) or (flag.namespace is not None and _names_module(code, others, flag.namespace))


def _names_module(code: CodeType, others: dict[str, Any], namespace: dict[str, Any]) -> bool:
    """Whether code names the module with this namespace, by a global or in an import."""
    words = names_in(code)
    named = (one for one in named_values(words, others) if type(one) is ModuleType)
    own_name = str(namespace.get("__name__")).rpartition(".")[2]
    return own_name in words or any(ModuleType.__getattribute__(one, "__dict__") is namespace for one in named)


def frame_roots(frame: FrameType, names: dict[str, Any]) -> tuple[Any, ...]:
    """The variables of a frame and the globals its code names."""
    return (*names.values(), *named_values(frame.f_code.co_names, frame.f_globals))


def signal_callbacks(
    loops: Iterable[asyncio.AbstractEventLoop],
) -> Iterator[tuple[str, Callback, asyncio.AbstractEventLoop | None]]:
    """The handlers of signals to come, the main thread's or a loop's: of alarms that are set, and of the end of a child.

    Each with a text for people, and the loop.
    """
    by_loops = [(compat.signal_handlers_of(loop), loop) for loop in loops]
    for number, when in _signals_to_come():
        called: list[tuple[Callback, Any]] = [((signal.getsignal(number), ()), None)]
        called += [(compat.callback_of(handlers[number]), loop) for handlers, loop in by_loops if number in handlers]
        for callback, loop in called:
            if callable(callback[0]) and not compat.is_asyncio_internal(callback[0]):
                yield f"{number.name}'s handler, {when}", callback, loop


def _signals_to_come() -> Iterator[tuple[signal.Signals, str]]:
    for timer, seconds in compat.alarms().items():
        yield compat.SIGNALS_OF_ALARMS[timer], f"called by a timer in {seconds:.1f} s"
    yield signal.SIGCHLD, "called when a child process ends"
    if interrupted_by_sigio():
        yield signal.SIGIO, "called when a descriptor is ready"


def interrupted_by_sigio() -> bool:
    """Whether the application handles SIGIO, and a descriptor sends it."""
    return hasattr(signal, "SIGIO") and callable(signal.getsignal(signal.SIGIO)) and sends_sigio()


def callbacks_of_starting_thread(started: threading.Thread) -> Iterator[Callback]:
    """The functions that a starting thread will run, before it has reached application code."""
    carried = compat.thread_arguments(started)
    own = type(started).run
    for one in (*carried[:1], *([own.__get__(started)] if own is not threading.Thread.run else [])):
        if is_application_callback(one):
            yield one, carried


def call_callbacks(open_calls: Iterable[Any], places: Iterable[Place]) -> Iterator[Callback]:
    """The callbacks at the end of open and served calls."""
    for call in open_calls:
        yield from ((one, ()) for one in compat.end_callbacks(call) or ())
    for place in places:
        if place.context is not None:
            yield from ((one, ()) for one in compat.end_callbacks(place.context) or ())


def connectivity_callbacks(places: Iterable[Place]) -> Iterator[Callback]:
    """The callbacks for changes of the channels' connectivity."""
    yield from ((one, ()) for place in places for frame in place.frames for one in compat.connectivity_callbacks(frame))


_PROTOCOL_METHODS = (
    *("connection_made", "connection_lost", "data_received", "eof_received", "datagram_received", "error_received"),
    *("get_buffer", "buffer_updated", "pipe_data_received", "pipe_connection_lost", "process_exited"),
    *("pause_writing", "resume_writing"),
)
"""Methods of a protocol that an event loop calls."""


def protocol_methods(protocol: Any) -> list[MethodType]:
    """The application's methods of a protocol that a loop calls."""
    kind = type(protocol)
    found = (inherited(kind, name) for name in _PROTOCOL_METHODS)
    return [MethodType(one, protocol) for one in found if type(one) is FunctionType and _is_own(one.__code__)]


def _is_own(code: CodeType) -> bool:
    return is_application(code) and not is_http_library(code)


def _is_from_application(callback: Any) -> bool:
    """Whether the application passed the callback to its loop: its own function, or a method such as ``event.set``."""
    given = compat.is_asyncio(callback) and not compat.is_asyncio_internal(callback)
    return given or is_application_callback(callback)


def socket_callbacks(loop: asyncio.AbstractEventLoop) -> Iterator[Callback]:
    """The application's callbacks for events of sockets, pipes and child processes."""
    called = map(compat.callback_of, compat.watched_by(loop))
    yield from (one for one in called if _is_from_application(one[0]))
    for protocol in compat.protocols_of(loop):
        yield from ((method, ()) for method in protocol_methods(protocol))
