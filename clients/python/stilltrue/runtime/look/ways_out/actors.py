"""The actors of this process (tasks, timers, threads, callbacks), what they hold, and whether their code ends things."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_application_callback, is_library, is_ours, position_of
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.code.attributes import attributes_of
from stilltrue.runtime.look.code.reachable_names import ReachableNames
from stilltrue.runtime.look.ways_out.actor_code import (
    callback_may_end,
    callback_roots,
    context_values,
    frame_may_end,
    globals_of,
    names_ahead,
    names_by,
    names_by_all,
    no_names,
)
from stilltrue.runtime.look.ways_out.kinds.wakers import protocol_methods
from stilltrue.runtime.waits.resolvers.executors import items_behind

_CERTAIN = frozenset({"cancel", "_on_timeout", "_release_waiter", "_timeout", "_deliver_cancellation", "set_result"})
"""Names of callbacks that certainly end their target."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Actor:
    """A potential actor: ``text`` for people, its ``party``, if any, and the objects it holds.

    ``owner``: the task, thread (its identity) or call that it is or belongs to. ``ends``, ``borrowed``: see :meth:`Reach.held`.
    ``fires_at``: the loop time at which a timer that certainly ends its target fires. ``is_context_callback``: a callback that
    the context of a served call runs when the call is over. ``extra_roots``: further roots for :class:`Releasers`.
    ``is_module``: the roots are a module's globals, shared by all code of the module. ``only_calls``: it can only call what it
    reaches, so only what such a call ends counts.
    """

    text: str
    roots: tuple[Any, ...]
    party: PartyName | None = None
    owner: Any = None
    ends: bool = False
    borrowed: bool = False
    fires_at: float | None = None
    loop: asyncio.AbstractEventLoop | None = None
    is_context_callback: bool = False
    extra_roots: tuple[Any, ...] = ()
    is_module: bool = False
    only_calls: bool = False
    names_reached: Callable[[bool], ReachableNames] = no_names


def timers(loop: asyncio.AbstractEventLoop, handles: Iterable[asyncio.Handle]) -> Iterator[Actor]:
    """The timers and scheduled callbacks of a loop."""
    for handle in handles:
        callback, arguments = compat.callback_of(handle)
        name = compat.name_of(callback)
        when = handle.when() if isinstance(handle, asyncio.TimerHandle) else None
        text = f"{name}, scheduled on its event loop"
        if when is not None:
            text = f"{name}, called by a timer of its event loop in {max(0.0, when - compat.time_of(loop)):.1f} s"
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
        )


def _is_aiohttps(callback: Any) -> bool:
    """Whether this is the timer of aiohttp's ``ClientTimeout``, which cancels what it covers."""
    code, names, _ = compat.code_behind(callback)
    return code is not None and qualname_of(code) == "TimeoutHandle.__call__" and names.get("__name__") == "aiohttp.helpers"


def protocols(loop: asyncio.AbstractEventLoop) -> Iterator[Actor]:
    """The application's protocols on a loop."""
    for protocol in compat.protocols_of(loop):
        methods = protocol_methods(protocol)
        if methods:
            yield _of_callbacks(f"{type(protocol).__qualname__}, a protocol on its event loop", methods, loop=loop)


def tasks(places: Places, running: Iterable[Task]) -> Iterator[Actor]:
    """The tasks of a loop and their done callbacks."""
    for task in running:
        party = places.party_of(task)
        place = places.of_task(task, party)
        own = {id(one) for one in place.coroutines}
        speaking = False
        for one in reversed(place.coroutines):
            frame = frame_of(one)
            if frame is None or is_ours(frame.f_code) or compat.is_grpc(frame.f_code.co_filename):
                continue
            ends = not is_library(frame.f_code) and frame_may_end(frame)
            text = f"task {task.get_name()}, which holds it: {place.stack()[0]}"
            yield Actor(
                text=text,
                roots=tuple(held for held in compat.held_by_coroutine(one) if id(held) not in own),
                party=party,
                owner=task,
                ends=ends,
                names_reached=no_names if is_library(frame.f_code) else partial(names_ahead, frame),
            )
            if ends:
                speaking = True
                yield Actor(text=text, roots=globals_of(frame), party=party, owner=task, ends=True, borrowed=True)
            if is_application(frame.f_code):
                yield Actor(text=text, roots=names_ahead(frame, False).global_values, party=party, owner=task, only_calls=True)
        if speaking:
            text = f"task {task.get_name()}, which has it in its context: {place.stack()[0]}"
            yield Actor(text=text, roots=context_values(task), party=party, owner=task, ends=True, borrowed=True)
        called = tuple(callback for callback, _ in compat.callbacks_of(task) if not compat.is_asyncio_internal(callback))
        if called:
            yield _of_callbacks(f"a done callback of task {task.get_name()}", called, party=party, owner=task)


def threads(places: Iterable[Place]) -> Iterator[Actor]:
    """All threads."""
    known = compat.threads()
    for place in places:
        thread = known.get(place.ident)
        name = str(place.ident) if thread is None else thread.name
        carried = () if thread is None else compat.thread_arguments(thread)
        for frame in place.frames:
            code = frame.f_code
            yield from _connectivity_callbacks(frame)
            if is_ours(code) or compat.is_grpc(code.co_filename) or compat.is_loop_code(code):
                continue
            if is_library(code):
                continue
            whole_module = code.co_name == "<module>"
            ends = frame_may_end(frame)
            text = f"thread {name}, which holds it: {position_of(frame)}"
            roots = tuple(variables_of(frame).values())
            if ends and issubclass(type(thread), threading.Thread) and any(one is thread for one in roots):
                roots += attributes_of(thread)  # it runs its own method
            yield Actor(
                text=text,
                roots=roots,
                party=place.party,
                owner=place.ident,
                ends=ends,
                borrowed=whole_module,
                extra_roots=carried,
                is_module=whole_module,
                names_reached=partial(names_ahead, frame),
            )
            if ends:
                yield Actor(text=text, roots=globals_of(frame), party=place.party, owner=place.ident, ends=True, borrowed=True)
            if is_application(code) and not whole_module:
                yield Actor(
                    text=text,
                    roots=names_ahead(frame, False).global_values,
                    party=place.party,
                    owner=place.ident,
                    only_calls=True,
                )
        if carried:
            text = f"thread {name}, which was started with it"
            ends = any(callback_may_end(one, carried) for one in carried if callable(one))
            begun = any(is_application(frame.f_code) for frame in place.frames)
            names_reached = no_names if begun else names_by_all([one for one in carried if callable(one)], carried)
            yield Actor(
                text=text,
                roots=callback_roots(*carried),
                party=place.party,
                owner=place.ident,
                ends=ends,
                names_reached=names_reached,
            )


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
                yield _of_callbacks(text, [callback], owner=callback)
        for event in compat.scheduler_events(place.frames):
            text = f"{compat.name_of(event.action)}, an event of a scheduler"
            yield _future_call(text, place, event.action, *event.argument, *event.kwargs.values())


def _future_call(text: str, place: Place, callback: Any, *arguments: Any) -> Actor:
    """A future call of the thread at ``place``."""
    return _of_callbacks(text, [callback], arguments, party=place.party, owner=place.ident)


def _of_callbacks(text: str, callbacks: Sequence[Any], arguments: tuple[Any, ...] = (), **of_actor: Any) -> Actor:
    """An actor that calls ``callbacks`` with ``arguments``; ``of_actor``: its other fields."""
    roots = callback_roots(*callbacks, *arguments)
    ends = any(callback_may_end(one, arguments) for one in callbacks)
    return Actor(text=text, roots=roots, ends=ends, names_reached=names_by_all(callbacks, arguments), **of_actor)


def _connectivity_callbacks(frame: FrameType) -> Iterator[Actor]:
    for callback in compat.connectivity_callbacks(frame):
        yield _of_callbacks(f"{compat.name_of(callback)}, a connectivity callback of a channel", [callback], owner=callback)


def library_threads(places: Iterable[Place]) -> Iterator[Actor]:
    """Threads in library code that may call what they hold, such as a pool's result thread."""
    for place in places:
        roots = tuple(
            held
            for frame in place.frames
            if is_library(frame.f_code) and not compat.is_loop_code(frame.f_code)
            for held in variables_of(frame).values()
        )
        if roots:
            yield Actor(text=f"thread {place.ident}, which may call it", roots=roots, party=place.party, owner=place.ident)


def signals(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """Signal handlers, the main thread's or a loop's, that will run when a set alarm fires or a child process ends."""
    handlers = [compat.signal_handlers_of(loop) for loop in loops]
    for number, when in _signals_to_come():
        called = [(signal.getsignal(number), ()), *(compat.callback_of(one[number]) for one in handlers if number in one)]
        for handler, arguments in called:
            if callable(handler):
                yield _of_callbacks(f"{number.name}'s handler, {when}", [handler], arguments, owner=handler)


def _signals_to_come() -> Iterator[tuple[signal.Signals, str]]:
    for timer, seconds in compat.alarms().items():
        yield compat.SIGNALS_OF_ALARMS[timer], f"called by a timer in {seconds:.1f} s"
    yield signal.SIGCHLD, "called when a child process ends"


def finalizers(kept: Callable[[Any], bool]) -> Iterator[Actor]:
    """The finalizers of objects, except objects for which ``kept`` is true: those have known holders."""
    for thing, info in compat.finalizers():
        if kept(thing):
            continue
        text = f"a finalizer of a {type(thing).__name__}"
        roots = (info.func, *info.args, *(info.kwargs or {}).values())
        yield Actor(text=text, roots=roots, ends=callback_may_end(info.func), names_reached=names_by_all([info.func], roots))


def hooks(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """Hooks for failures, unraisable exceptions, garbage collection, tracing and profiling."""
    failing = (threading.excepthook, sys.excepthook, sys.unraisablehook)
    every: list[tuple[Any, str]] = [
        *((one, "an exception is unhandled") for one in (*failing, *map(compat.exception_handler_of, loops))),
        *((one, "garbage is collected") for one in gc.callbacks),
    ]
    every += ((one, "a thread runs code") for one in (threading.gettrace(), threading.getprofile()))
    for hook, when in every:
        if is_application_callback(hook):
            yield _of_callbacks(f"{compat.name_of(hook)}, called when {when}", [hook], owner=hook)


def calls(open_calls: Iterable[Any]) -> Iterator[Actor]:
    """The done callbacks of open calls."""
    for call in open_calls:
        callbacks = compat.end_callbacks(call)
        if callbacks:
            yield _of_callbacks("a done callback of another call", callbacks, owner=call)


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
