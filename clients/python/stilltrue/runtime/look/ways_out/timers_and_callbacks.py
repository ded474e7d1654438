"""Timers, callbacks, signal handlers, finalizers and queued items as actors: what they hold, and whether they end it."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.origins import is_application_callback
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.called_code.given_to_c import functions_given_to_c
from stilltrue.runtime.look.progress.stack_ahead import callback_raises
from stilltrue.runtime.look.ways_out.actor_code import (
    callback_may_end,
    callback_roots,
    context_values,
    names_by,
    own_reached_by_all,
)
from stilltrue.runtime.look.ways_out.actors import Actor, of_callbacks
from stilltrue.runtime.look.ways_out.kinds.wakers import (
    given_to_package,
    interrupted_by_sigio,
    protocol_methods,
    signal_callbacks,
)
from stilltrue.runtime.waits.resolvers.executors import items_behind

_CERTAIN = frozenset({"cancel", "_on_timeout", "_release_waiter", "_timeout", "_deliver_cancellation", "set_result"})
"""Names of callbacks that certainly end their target."""
_ENDING_NOTHING = frozenset(
    (("asyncpg.connection", "_StatementCache._on_entry_expired"), ("asyncpg.pool", "Pool._warn_on_long_close"))
)
"""By module and name: a connection forgets a prepared statement; a warning is logged."""


def timers(loop: asyncio.AbstractEventLoop, handles: Iterable[asyncio.Handle]) -> Iterator[Actor]:
    """The timers and scheduled callbacks of a loop."""
    for handle in handles:
        callback, arguments = compat.callback_of(handle)
        if _ends_nothing(callback):
            continue
        name = compat.name_of(callback)
        when = handle.when() if isinstance(handle, asyncio.TimerHandle) else None
        text = f"{name}, scheduled on its event loop"
        if when is not None:
            text = f"{name}, called by a timer of its event loop in {max(0.0, when - compat.time_of(loop)):.1f} s"
        given = given_to_package(callback)
        if given:
            yield of_callbacks(f"{text}, which may call {compat.name_of(given[0])}", given, loop=loop)
        ends = callback_may_end(callback, arguments)
        if ends and not compat.is_asyncio(callback):
            yield Actor(text=text, roots=context_values(handle), ends=True, borrowed=True, loop=loop)
        yield Actor(
            text=text,
            roots=callback_roots(callback, *arguments),
            ends=ends,
            fires_at=when if name.rsplit(".", 1)[-1] in _CERTAIN or _is_aiohttps(callback) else None,
            loop=loop,
            names_reached=partial(names_by, callback, arguments),
            led_by=partial(own_reached_by_all, (callback,), arguments),
        )


def _is_aiohttps(callback: Any) -> bool:
    """Whether this is the timer of aiohttp's ``ClientTimeout``, which cancels what it covers."""
    code, names, _ = compat.code_behind(callback)
    return code is not None and qualname_of(code) == "TimeoutHandle.__call__" and names.get("__name__") == "aiohttp.helpers"


def _ends_nothing(callback: Any) -> bool:
    """Whether this is one of a library's own timers that neither end a wait nor release anything (:data:`_ENDING_NOTHING`)."""
    code, names, _ = compat.code_behind(callback)
    return code is not None and (names.get("__name__"), qualname_of(code)) in _ENDING_NOTHING


def protocols(loop: asyncio.AbstractEventLoop) -> Iterator[Actor]:
    """The application's protocols on a loop."""
    for protocol in compat.protocols_of(loop):
        methods = protocol_methods(protocol)
        if methods:
            yield of_callbacks(f"{type(protocol).__qualname__}, a protocol on its event loop", methods, loop=loop)


def items(places: Iterable[Place]) -> Iterator[Actor]:
    """Future calls of executor threads: the callbacks of their current items, queued items, and scheduler events."""
    for place in places:
        future = compat.running_item(list(place.frames))
        for callback in compat.item_callbacks(future) if future is not None else ():
            text = f"{compat.name_of(callback)}, a done callback of an executor item"
            yield _future_call(text, place, callback)
        for one in items_behind(place.frames) if future is not None else ():
            text = f"{compat.name_of(one.fn)}, an item queued for an executor"
            yield _future_call(text, place, one.fn, *one.args, *one.kwargs.values())
        for frame in place.frames:
            for callback in compat.result_callbacks(frame):
                text = f"{compat.name_of(callback)}, a result callback of a pool"
                yield of_callbacks(text, [callback], owner=callback)
        for event in compat.scheduler_events(place.frames):
            text = f"{compat.name_of(event.action)}, an event of a scheduler"
            yield _future_call(text, place, event.action, *event.argument, *event.kwargs.values())


def _future_call(text: str, place: Place, callback: Any, *arguments: Any) -> Actor:
    """A future call of the thread at ``place``."""
    return of_callbacks(text, [callback], arguments, party=place.party, owner=place.ident)


def signals(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """The handlers of signals to come."""
    for text, (handler, arguments), _ in signal_callbacks(loops):
        yield of_callbacks(text, [handler], arguments, owner=handler)


def pending_alarm() -> str:
    """A text if a signal is about to interrupt the main thread, else empty.

    A timer that repeats (a heartbeat, a profiler), or counts processor time, does so if its handler may raise an exception.
    """
    for timer, seconds in compat.alarms().items():
        number = compat.SIGNALS_OF_ALARMS[timer]
        handler = signal.getsignal(number)
        once = timer == signal.ITIMER_REAL and not signal.getitimer(timer)[1]
        if callable(handler) and (once or callback_raises(handler)):
            return f"{number.name}, which interrupts the main thread in {seconds:.1f} s"
    return "SIGIO, which interrupts the main thread when a descriptor is ready" if interrupted_by_sigio() else ""


def finalizers(kept: Callable[[Any], bool]) -> Iterator[Actor]:
    """The finalizers of objects, except objects for which ``kept`` is true: those have known holders."""
    for thing, info in compat.finalizers():
        if kept(thing):
            continue
        text = f"a finalizer of a {type(thing).__name__}"
        yield of_callbacks(text, [info.func], (*info.args, *(info.kwargs or {}).values()))


def hooks(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """Hooks for failures, unraisable exceptions, garbage collection, tracing and profiling; functions that C calls."""
    failing = (threading.excepthook, sys.excepthook, sys.unraisablehook)
    every: list[tuple[Any, str]] = [
        *((one, "an exception is unhandled") for one in (*failing, *map(compat.exception_handler_of, loops))),
        *((one, "garbage is collected") for one in gc.callbacks),
    ]
    every += ((one, "a thread runs code") for one in (threading.gettrace(), threading.getprofile()))
    for hook, when in every:
        if is_application_callback(hook):
            yield of_callbacks(f"{compat.name_of(hook)}, called when {when}", [hook], owner=hook)
    for one in functions_given_to_c():
        yield of_callbacks(f"{compat.name_of(one)}, which code in C may call", [one], owner=one)


def calls(open_calls: Iterable[Any]) -> Iterator[Actor]:
    """The done callbacks of open calls."""
    for call in open_calls:
        callbacks = compat.end_callbacks(call)
        if callbacks:
            yield of_callbacks("a done callback of another call", callbacks, owner=call)


def contexts(places: Iterable[Place]) -> Iterator[Actor]:
    """The callbacks at the end of served calls."""
    for place in places:
        callbacks = compat.end_callbacks(place.context) if place.context is not None else None
        if callbacks:
            ends = any(map(callback_may_end, callbacks))
            text = f"a callback at the end of the call that {place.party} serves"
            yield Actor(
                text=text,
                roots=callback_roots(*callbacks),
                party=place.party,
                owner=place.ident,
                ends=ends,
                is_context_callback=True,
            )
