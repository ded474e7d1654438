"""Who may act in this process: tasks, timers, threads, callbacks; what each holds, and whether it speaks of ending things."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_library, is_ours, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import attributes_of
from stilltrue.runtime.look.code.reachable_names import ReachableNames
from stilltrue.runtime.look.enders.kinds.wakers import told_of_sockets
from stilltrue.runtime.look.enders.spoken import (
    frame_speaks,
    globals_of,
    in_context,
    names_ahead,
    names_by,
    names_by_all,
    nothing,
    roots_from,
    speaks,
)

_CERTAIN = frozenset({"cancel", "_on_timeout", "_release_waiter", "_timeout", "_deliver_cancellation", "set_result"})
"""Callbacks by whose names one knows that they end what they are for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Actor:
    """Somebody who may act: ``text`` for people, its ``party`` if it has one, and what it holds.

    ``of`` is the task, thread (its identity) or call that it is, or belongs to. ``ends``, ``loose``: as :meth:`Reach.held`.
    ``when``: the loop's time at which a timer fires that certainly ends what it is for. ``context``: what the context
    of the call being served calls when that call is over. ``besides``: what it may come by that undoes what others have done.
    ``shared``: what it holds is a module's, for all who run its code.
    ``calls``: it comes by what it holds, and may call it: only what is ended so counts.
    """

    text: str
    roots: tuple[Any, ...]
    party: PartyName | None = None
    of: Any = None
    ends: bool = False
    loose: bool = False
    when: float | None = None
    loop: asyncio.AbstractEventLoop | None = None
    context: bool = False
    besides: tuple[Any, ...] = ()
    shared: bool = False
    calls: bool = False
    names_reached: Callable[[bool], ReachableNames] = nothing


def timers(loop: asyncio.AbstractEventLoop, handles: Iterable[asyncio.Handle]) -> Iterator[Actor]:
    """The timers and scheduled callbacks of a loop."""
    for handle in handles:
        callback, arguments = compat.called_by(handle)
        name = compat.name_of(callback)
        when = handle.when() if isinstance(handle, asyncio.TimerHandle) else None
        text = f"{name}, scheduled on its event loop"
        if when is not None:
            text = f"{name}, which a timer of its event loop calls in {max(0.0, when - compat.time_of(loop)):.1f} s"
        ends = speaks(callback, arguments)
        if ends and not compat.is_asyncio(callback):
            yield Actor(text=text, roots=in_context(handle), ends=True, loose=True, loop=loop)
        yield Actor(
            text=text,
            roots=roots_from(callback, *arguments),
            ends=ends,
            when=when if name.rsplit(".", 1)[-1] in _CERTAIN or _is_aiohttps(callback) else None,
            loop=loop,
            names_reached=partial(names_by, callback, arguments),
        )


def _is_aiohttps(callback: Any) -> bool:
    """Whether it is the timer of aiohttp's ``ClientTimeout``, which cancels what is in it."""
    code, names, _ = compat.called_in(callback)
    return code is not None and code.co_qualname == "TimeoutHandle.__call__" and names.get("__name__") == "aiohttp.helpers"


def protocols(loop: asyncio.AbstractEventLoop) -> Iterator[Actor]:
    """The application's protocols, which a loop tells of their sockets."""
    for protocol in compat.protocols_of(loop):
        methods = told_of_sockets(protocol)
        if methods:
            text = f"{type(protocol).__qualname__}, which its event loop tells of a socket"
            ends = any(map(speaks, methods))
            yield Actor(text=text, roots=roots_from(*methods), ends=ends, loop=loop, names_reached=names_by_all(methods))


def tasks(places: Places, running: Iterable[Task]) -> Iterator[Actor]:
    """The tasks of a loop, and what is called when they end."""
    for task in running:
        party = places.party_of(task)
        place = places.of_task(task, party)
        own = {id(one) for one in place.coroutines}
        speaking = False
        for one in reversed(place.coroutines):
            frame = frame_of(one)
            if frame is None or is_ours(frame.f_code) or compat.is_grpc(frame.f_code.co_filename):
                continue
            ends = not is_library(frame.f_code) and frame_speaks(frame)
            text = f"task {task.get_name()}, which holds it: {place.stack()[0]}"
            yield Actor(
                text=text,
                roots=tuple(held for held in compat.names_in(one) if id(held) not in own),
                party=party,
                of=task,
                ends=ends,
                names_reached=nothing if is_library(frame.f_code) else partial(names_ahead, frame),
            )
            if ends:
                speaking = True
                yield Actor(text=text, roots=globals_of(frame), party=party, of=task, ends=True, loose=True)
            if is_application(frame.f_code):
                yield Actor(text=text, roots=names_ahead(frame, False).named, party=party, of=task, calls=True)
        if speaking:
            text = f"task {task.get_name()}, in whose context it is: {place.stack()[0]}"
            yield Actor(text=text, roots=in_context(task), party=party, of=task, ends=True, loose=True)
        called = tuple(callback for callback, _ in compat.callbacks_of(task) if not compat.is_asyncios_own(callback))
        if called:
            text = f"what is called at the end of task {task.get_name()}"
            yield Actor(
                text=text,
                roots=roots_from(*called),
                party=party,
                of=task,
                ends=any(map(speaks, called)),
                names_reached=names_by_all(called),
            )


def threads(places: Iterable[Place]) -> Iterator[Actor]:
    """The threads, whatever they do."""
    known = compat.threads()
    for place in places:
        thread = known.get(place.ident)
        name = str(place.ident) if thread is None else thread.name
        carried = () if thread is None else compat.carried_by(thread)
        for frame in place.frames:
            code = frame.f_code
            yield from _told_of_connectivity(frame)
            if is_ours(code) or compat.is_grpc(code.co_filename) or compat.is_loop_code(code):
                continue
            if is_library(code) and not _is_timer(frame):
                continue
            whole_module = code.co_name == "<module>"
            ends = frame_speaks(frame)
            text = f"thread {name}, which holds it: {position_of(frame)}"
            roots = tuple(variables_of(frame).values())
            if ends and issubclass(type(thread), threading.Thread) and any(one is thread for one in roots):
                roots += attributes_of(thread)  # it runs its own method
            yield Actor(
                text=text,
                roots=roots,
                party=place.party,
                of=place.ident,
                ends=ends,
                loose=whole_module,
                besides=carried,
                shared=whole_module,
                names_reached=partial(names_ahead, frame),
            )
            if ends:
                yield Actor(text=text, roots=globals_of(frame), party=place.party, of=place.ident, ends=True, loose=True)
            if is_application(code) and not whole_module:
                yield Actor(text=text, roots=names_ahead(frame, False).named, party=place.party, of=place.ident, calls=True)
        if carried:
            text = f"thread {name}, which was started with it"
            ends = any(speaks(one, carried) for one in carried if callable(one))
            begun = any(is_application(frame.f_code) for frame in place.frames)
            names_reached = nothing if begun else names_by_all([one for one in carried if callable(one)], carried)
            yield Actor(
                text=text, roots=roots_from(*carried), party=place.party, of=place.ident, ends=ends, names_reached=names_reached
            )


def _told_of_connectivity(frame: FrameType) -> Iterator[Actor]:
    for callback in compat.told_of_connectivity(frame):
        yield Actor(
            text=f"{compat.name_of(callback)}, which is called when a channel's connectivity changes",
            roots=roots_from(callback),
            of=callback,
            ends=speaks(callback),
            names_reached=names_by_all([callback]),
        )


def of_libraries(places: Iterable[Place]) -> Iterator[Actor]:
    """The threads in the standard library's code, which may call what they have: a pool's thread that tells of results."""
    for place in places:
        roots = tuple(
            held
            for frame in place.frames
            if is_library(frame.f_code) and not compat.is_loop_code(frame.f_code)
            for held in variables_of(frame).values()
        )
        if roots:
            yield Actor(text=f"thread {place.ident}, which may call it", roots=roots, party=place.party, of=place.ident)


def signals(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """What is called in the main thread, or by an event loop, when an alarm that is set goes off, or a child process ends."""
    handlers = [compat.signal_handlers_of(loop) for loop in loops]
    for number, when in _signals_to_come():
        called = [(signal.getsignal(number), ()), *(compat.called_by(one[number]) for one in handlers if number in one)]
        for handler, arguments in called:
            if callable(handler):
                yield Actor(
                    text=f"{number.name}'s handler, which {when}",
                    roots=roots_from(handler, *arguments),
                    of=handler,
                    ends=speaks(handler, arguments),
                    names_reached=names_by_all([handler], arguments),
                )


def _signals_to_come() -> Iterator[tuple[signal.Signals, str]]:
    for timer, seconds in compat.alarms().items():
        yield compat.SIGNALS_OF_ALARMS[timer], f"an alarm calls in {seconds:.1f} s"
    yield signal.SIGCHLD, "is called when a child process ends"


def finalizers(kept: Callable[[Any], bool]) -> Iterator[Actor]:
    """What is called when somebody lets go of an object, but for those that are ``kept`` by known holders."""
    for thing, info in compat.finalizers():
        if kept(thing):
            continue
        text = f"what is called when a {type(thing).__name__} is let go of"
        roots = (info.func, *info.args, *(info.kwargs or {}).values())
        yield Actor(text=text, roots=roots, ends=speaks(info.func), names_reached=names_by_all([info.func], roots))


def hooks(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Actor]:
    """What is called when a thread or something on a loop fails, nobody is left to hear of an exception, garbage is collected,
    or code runs.
    """
    failing = (threading.excepthook, sys.excepthook, sys.unraisablehook)
    every: list[tuple[Any, str]] = [
        *((one, "something fails") for one in (*failing, *map(compat.exception_handler_of, loops))),
        *((one, "Python collects") for one in gc.callbacks),
    ]
    every += ((one, "threads run code") for one in (threading.gettrace(), threading.getprofile()))
    for hook, when in every:
        code, _, _ = compat.called_in(hook)
        if code is not None and is_application(code):
            text = f"{compat.name_of(hook)}, which is called when {when}"
            yield Actor(text=text, roots=roots_from(hook), of=hook, ends=speaks(hook), names_reached=names_by_all([hook]))


def calls(made: Iterable[Any]) -> Iterator[Actor]:
    """What is called at the end of calls that are open."""
    for call in made:
        callbacks = compat.callbacks_of_made(call)
        if callbacks:
            ends = any(map(speaks, callbacks))
            text = "what is called at the end of another call"
            yield Actor(text=text, roots=roots_from(*callbacks), of=call, ends=ends, names_reached=names_by_all(callbacks))


def contexts(places: Iterable[Place]) -> Iterator[Actor]:
    """What is called at the end of the calls being served."""
    for place in places:
        callbacks = compat.callbacks_of_served(place.context) if place.context is not None else None
        if callbacks:
            ends = any(map(speaks, callbacks))
            text = f"what is called at the end of the call that {place.party} serves"
            yield Actor(text=text, roots=roots_from(*callbacks), party=place.party, of=place.ident, ends=ends, context=True)


def _is_timer(frame: FrameType) -> bool:
    return False if frame.f_code.co_filename != compat.SCHED_FILE else frame.f_code.co_name == "run"
