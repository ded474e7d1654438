"""Who may wake somebody else or set a flag: what the code ahead of a thread or task speaks of, and what callbacks carry."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_http
from stilltrue.runtime.introspection.places import Place
from stilltrue.runtime.look.code.called import named_ahead, named_by_callback
from stilltrue.runtime.look.code.names import mentioned_in, stored_in
from stilltrue.runtime.look.progress.flags import Flag
from stilltrue.runtime.look.progress.stretches import Stretch

_WAKING = frozenset(
    {"set", "notify", "notify_all", "put", "put_nowait", "release", "set_result", "set_exception", "cancel", "close"}
    | {"aclose", "stop", "shutdown", "abort", "call_soon_threadsafe", "get", "get_nowait", "task_done"}
)
_AT_BARRIERS = frozenset({"wait", "reset", "abort"})
_CALLED_MAX = 20
Callback = tuple[Any, tuple[Any, ...]]
"""What is called, and what it is called with."""


def waking_names(what: Iterable[Any]) -> frozenset[str]:
    """How code speaks that wakes somebody who waits for one of ``what``."""
    return _WAKING | _AT_BARRIERS if any(issubclass(type(one), threading.Barrier) for one in what) else _WAKING


def speaks(stretch: Stretch, waking: frozenset[str]) -> bool:
    """Whether what is ahead may wake somebody."""
    ahead, names = stretch.ahead, variables_of(stretch.frame)
    if not ahead.known or not waking.isdisjoint(ahead.mentioned):
        return True
    if any(_may_wake(one, waking) for one in _callables(stretch, names)):
        return True
    return any(not waking.isdisjoint(mentioned_in(code)) for code in _named(stretch))


def _may_wake(function: Any, waking: frozenset[str]) -> bool:
    code, _, _ = compat.called_in(function)
    if code is None:
        return compat.name_of(function).rsplit(".", 1)[-1] in waking
    return code.co_name in waking or not waking.isdisjoint(mentioned_in(code))


def sets(stretch: Stretch, flag: Flag) -> bool:
    """Whether what is ahead may set one of the flag's names."""
    ahead, names = stretch.ahead, variables_of(stretch.frame)
    if not ahead.known or _meets(ahead.stored, stretch.frame.f_code, flag):
        return True
    if any(callback_sets((one, ()), flag) for one in _callables(stretch, names)):
        return True
    return any(_meets(stored_in(code), code, flag) for code in _named(stretch))


def _callables(stretch: Stretch, names: dict[str, Any]) -> list[Any]:
    """The functions that are ahead as variables: to be called, or given to others."""
    return [one for name in stretch.ahead.variables if name in names and callable(one := names[name])]


def callback_sets(callback: Callback, flag: Flag) -> bool:
    """Whether a callback may set one of the flag's names; what is compiled sets none."""
    todo, seen = [callback], set[int]()
    while todo and len(seen) < _CALLED_MAX:
        function, arguments = todo.pop()
        if id(function) in seen:  # a timer's function may hold itself, to be called again
            continue
        seen.add(id(function))
        code, _, _ = compat.called_in(function)
        near = (*compat.bound_to(function), *arguments)
        if code is not None:
            named = (one for one, _ in named_by_callback(function, arguments))
            if any(_meets(stored_in(one), one, flag) for one in (code, *named)):
                return True
        todo += [(one, ()) for one in near if compat.is_function(one)]
    return bool(todo)


def _named(stretch: Stretch) -> Iterator[CodeType]:
    return (code for code, _ in named_ahead(stretch.ahead, stretch.frame))


def _meets(stored: frozenset[str], code: CodeType, flag: Flag) -> bool:
    return "*" in stored or (not stored.isdisjoint(flag.names) and flag.file in ("", code.co_filename))


def roots_of(frame: FrameType, names: dict[str, Any]) -> tuple[Any, ...]:
    """What a frame has: its variables, and the globals that its code names."""
    return (*names.values(), *(frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals))


def of_alarm() -> Iterator[Callback]:
    """What a signal calls in the main thread when the alarm that is set goes off."""
    seconds, _ = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM) if seconds else None
    if callable(handler):
        yield handler, ()


def of_beginning(started: threading.Thread) -> Iterator[Callback]:
    """What a thread is about to run that has not come to the application's code yet."""
    carried = compat.carried_by(started)
    own = type(started).run
    for one in (*carried[:1], *([own.__get__(started)] if own is not threading.Thread.run else [])):
        code, _, _ = compat.called_in(one)
        if code is not None and is_application(code):
            yield one, carried


def of_calls(made: Iterable[Any], places: Iterable[Place]) -> Iterator[Callback]:
    """What is called at the end of the calls that are open, and of those that are served."""
    for call in made:
        yield from ((one, ()) for one in compat.callbacks_of_made(call) or ())
    for place in places:
        if place.context is not None:
            yield from ((one, ()) for one in compat.callbacks_of_served(place.context) or ())


_TOLD = (
    *("connection_made", "connection_lost", "data_received", "eof_received", "datagram_received", "error_received"),
    *("get_buffer", "buffer_updated", "pipe_data_received", "pipe_connection_lost", "process_exited"),
    *("pause_writing", "resume_writing"),
)
"""What an event loop calls of a protocol."""


def told_of_sockets(protocol: Any) -> list[MethodType]:
    """The methods that a loop calls of a protocol of the application's."""
    kind = type(protocol)
    found = (next((one.__dict__[name] for one in kind.__mro__ if name in one.__dict__), None) for name in _TOLD)
    return [MethodType(one, protocol) for one in found if type(one) is FunctionType and _is_own(one.__code__)]


def _is_own(code: CodeType) -> bool:
    return is_application(code) and not is_of_http(code)


def _is_given(callback: Any) -> bool:
    """Whether the application has given it to its loop: a function of its own, or a method such as ``event.set``."""
    code, _, _ = compat.called_in(callback)
    if code is not None and is_application(code):
        return True
    return compat.is_asyncio(callback) and not compat.is_asyncios_own(callback)


def of_sockets(loop: asyncio.AbstractEventLoop) -> Iterator[Callback]:
    """What a loop calls of the application's when something happens to a socket, a pipe or a child process."""
    called = map(compat.called_by, compat.watched_by(loop))
    yield from (one for one in called if _is_given(one[0]))
    for protocol in compat.protocols_of(loop):
        yield from ((method, ()) for method in told_of_sockets(protocol))
