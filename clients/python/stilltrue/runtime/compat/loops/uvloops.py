"""Reads private parts of uvloop's compiled event loops: timers, callbacks, watchers, protocols.

Rules:

1. The garbage collector visits the fields of a compiled object (``gc.get_referents``) in the same order for all objects of a
   class. Which field holds the callback and which its arguments is not assumed but observed on a loop of our own, which never
   runs and has one handle of each kind. If that loop does not show exactly those, no loop of its class is read: None, which is
   doubt.
2. A handle is shown as asyncio's own handle would be. uvloop's own methods that wake a socket's waiter are left out, as
   asyncio's are; ``loop.stop`` is one of uvloop's own methods but is shown.
3. uvloop's clock is the monotonic one in milliseconds. Asking the loop would write its time from another thread.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import socket
import time
from collections import deque
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.concurrent_reads import items_of

_MODULE = "uvloop.loop"
_ATTEMPTS = 10
_SECONDS_FAR = 3600.0
_CLOCKS_APART_SECONDS_MAX = 1.0
_POLLED = "tfd:"


class _Fields(NamedTuple):
    """The number of fields of a handle, and the positions of its callback, arguments and context."""

    size: int
    callback: int
    arguments: int
    context: int


class _Layout(NamedTuple):
    """The field positions of both kinds of handles."""

    timer: _Fields
    plain: _Fields


_layouts: dict[type, _Layout | None] = {}
"""The observed layout by uvloop loop class; None if it cannot be read."""


def class_of(loop: object) -> type | None:
    """uvloop's own class of a loop; None for any other loop."""
    for kind in type(loop).__mro__:
        if kind.__name__ == "Loop" and module_of(kind) == _MODULE:
            return kind
    return None


def is_uvloop(loop: object) -> bool:
    """Whether ``loop`` is a uvloop loop."""
    return class_of(loop) is not None


def timers_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.TimerHandle] | None:
    """The timers of a loop as asyncio's handles; None if they cannot be read."""
    layout = _layout_of(loop)
    return None if layout is None else _timers(loop, layout)


def ready_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle] | None:
    """The ready callbacks of a loop as asyncio's handles; None if they cannot be read."""
    layout = _layout_of(loop)
    return None if layout is None else _ready(loop, layout)


def watched_by(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle]:
    """The callbacks registered with ``add_reader`` and ``add_writer``."""
    layout = _layout_of(loop)
    return [] if layout is None else _watched(loop, layout)


def signal_handlers_of(loop: asyncio.AbstractEventLoop) -> dict[int, asyncio.Handle]:
    """The callbacks registered with ``add_signal_handler``, by signal number."""
    layout = _layout_of(loop)
    found: dict[int, asyncio.Handle] = {}
    for one in gc.get_referents(loop) if layout is not None else ():
        for number, handle in items_of(one) if type(one) is dict else ():
            shown = _plain(loop, handle, layout) if layout is not None and _is(handle, "Handle") else None
            if shown is not None:
                found[int(number)] = shown
    return found


def protocols_of(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """The protocols of a loop's sockets, pipes and processes, and behind TLS, candidates for the application's."""
    transports: list[Any] = [one for one in _in_sets(loop) if _is(one, "UVProcessTransport")]
    for one in gc.get_referents(loop):
        transports += list(WeakValueDictionary.copy(one).values()) if type(one) is WeakValueDictionary else []
    protocols = [one.get_protocol() for one in transports if hasattr(one, "get_protocol")]
    behind = [gc.get_referents(one) for one in protocols if _is(one, "SSLProtocol")]
    return [one for one in (*protocols, *(held for each in behind for held in each)) if one is not None]


def factories_of(loop: asyncio.AbstractEventLoop) -> list[Any] | None:
    """The functions that make the protocols of connections to come; None if they are not shown."""
    listening = [one for server in _in_sets(loop) if _is(server, "Server") for one in gc.get_referents(server)]
    sockets = [one for part in listening if type(part) is list for one in part if module_of(type(one)) == _MODULE]
    found = [[held for held in gc.get_referents(one) if callable(held) and held is not loop] for one in sockets]
    return [factory for each in found for factory in each] if all(found) else None


def descriptors_of(loop: asyncio.AbstractEventLoop) -> list[int]:
    """The descriptors that a loop polls, as listed by the Linux kernel; empty if they cannot be read."""
    asked = getattr(loop, "_get_backend_id", None)
    if asked is None or not is_uvloop(loop):
        return []
    try:
        lines = Path(f"/proc/self/fdinfo/{int(asked())}").read_text("ascii").splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith(_POLLED)]
    except (OSError, ValueError, IndexError):
        return []


def time_of(loop: asyncio.AbstractEventLoop) -> float:
    """The time of any loop (rule 3)."""
    return time.monotonic() if is_uvloop(loop) else loop.time()


def epoch_of(loop: asyncio.AbstractEventLoop, when: float) -> float:
    """The time (epoch) at which a loop's clock shows ``when``. A look takes long: when it began is no measure."""
    return time.time() + when - time_of(loop)


# -- rule 2: shown handles -------------------------------------------------------------------------------------------------


def _timers(loop: asyncio.AbstractEventLoop, layout: _Layout) -> list[asyncio.TimerHandle]:
    found = []
    for handle in _in_sets(loop):
        held = gc.get_referents(handle) if _is(handle, "TimerHandle") and not handle.cancelled() else ()
        fields = layout.timer
        if len(held) == fields.size and held[fields.callback] is not None:
            arguments, context = held[fields.arguments] or (), held[fields.context]
            found.append(asyncio.TimerHandle(handle.when(), held[fields.callback], arguments, loop, context))
    return found


def _ready(loop: asyncio.AbstractEventLoop, layout: _Layout) -> list[asyncio.Handle] | None:
    for _ in range(_ATTEMPTS):
        try:
            handles = [handle for one in gc.get_referents(loop) if type(one) is deque for handle in list(one)]
        except RuntimeError:  # the deque changed during the read
            continue
        shown = (_plain(loop, one, layout) or _own(loop, one, layout) for one in handles if _is(one, "Handle"))
        return [one for one in shown if one is not None]
    return None


def _plain(loop: asyncio.AbstractEventLoop, handle: Any, layout: _Layout) -> asyncio.Handle | None:
    """A callback of the application or asyncio; None for uvloop's own methods, whose field is not callable."""
    fields = layout.plain
    held = gc.get_referents(handle) if not handle.cancelled() else ()
    if len(held) != fields.size or not callable(held[fields.callback]):
        return None
    return asyncio.Handle(held[fields.callback], held[fields.arguments] or (), loop, held[fields.context])


def _own(loop: asyncio.AbstractEventLoop, handle: Any, layout: _Layout) -> asyncio.Handle | None:
    """A uvloop method: ``loop.stop``, or a stand-in that carries the method's objects."""
    fields = layout.plain
    held = gc.get_referents(handle) if not handle.cancelled() else ()
    if len(held) != fields.size or held[fields.callback] is None:
        return None
    if held[fields.callback] is loop and "Loop._stop" in repr(handle):
        return asyncio.Handle(loop.stop, (), loop, held[fields.context])
    rest = tuple(one for one in held[fields.callback :] if one is not None)
    return asyncio.Handle(functools.partial(_called_by_uvloop, *rest), (), loop, held[fields.context])


def _called_by_uvloop(*_: object) -> None:
    """Stands in for one of uvloop's own methods."""


def _watched(loop: asyncio.AbstractEventLoop, layout: _Layout) -> list[asyncio.Handle]:
    polls = _in_dictionaries(loop, "UVPoll")
    handles = (one for poll in polls for one in gc.get_referents(poll) if _is(one, "Handle"))
    return [shown for one in handles if (shown := _plain(loop, one, layout)) is not None]


def _is(thing: object, name: str) -> bool:
    return type(thing).__name__ == name and module_of(type(thing)) == _MODULE


def _in_sets(loop: object) -> list[Any]:
    return [item for one in gc.get_referents(loop) if type(one) is set for item in one.copy()]


def _in_dictionaries(loop: object, name: str) -> list[Any]:
    found = (item for one in gc.get_referents(loop) if type(one) is dict for item in list(one.values()))
    return [item for item in found if _is(item, name)]


# -- rule 1: field layout --------------------------------------------------------------------------------------------------


def _layout_of(loop: object) -> _Layout | None:
    kind = class_of(loop)
    if kind is None:
        return None
    if kind not in _layouts:
        _layouts[kind] = _seen_on(kind)
    return _layouts[kind]


def _seen_on(kind: type) -> _Layout | None:
    """The layout shown by a new loop with one handle of each known kind; None if it does not show exactly those."""
    loop: Any = None
    ends = socket.socketpair()
    try:
        loop = kind()
        return _probed(loop, ends[0])
    except Exception:  # noqa: BLE001 - an unknown layout cannot be read
        return None
    finally:
        if loop is not None:
            loop.close()
        for end in ends:
            end.close()


class _Mark:
    """A plain callback and its arguments."""

    def __init__(self) -> None:
        self.arguments = (object(), object())

    def __call__(self, *_: object) -> None:
        """Never called."""


def _probed(loop: Any, end: socket.socket) -> _Layout | None:
    context, when = copy_context(), time.monotonic() + _SECONDS_FAR
    timer, soon, threadsafe, reader, cancelled = (_Mark() for _ in range(5))
    handles = [
        loop.call_later(_SECONDS_FAR, timer, *timer.arguments, context=context),
        loop.call_soon(soon, *soon.arguments, context=context),
        loop.call_soon_threadsafe(threadsafe, *threadsafe.arguments, context=context),
    ]
    loop.stop()
    loop.add_reader(end, reader, *reader.arguments)
    loop.call_at(when, cancelled).cancel()
    loop.call_soon(cancelled).cancel()
    layout = _Layout(timer=_fields(handles[0], timer, context), plain=_fields(handles[1], soon, context))

    def shown() -> list[tuple[Any, Any]]:
        found = (*_timers(loop, layout), *(_ready(loop, layout) or ()), *_watched(loop, layout))
        return [(one._callback, one._args) for one in found]  # noqa: SLF001 - no public access

    known = [*((one, one.arguments) for one in (timer, soon, threadsafe)), (loop.stop, ()), (reader, reader.arguments)]
    clock_errors = [abs(one.when() - when) for one in _timers(loop, layout)] + [abs(loop.time() - time.monotonic())]
    found = shown()
    loop.remove_reader(end)
    for one in handles:
        one.cancel()
    return layout if found == known and max(clock_errors) < _CLOCKS_APART_SECONDS_MAX and shown() == [(loop.stop, ())] else None


def _fields(handle: Any, mark: _Mark, context: Context) -> _Fields:
    held = gc.get_referents(handle)
    at = {id(one): number for number, one in enumerate(held)}
    arguments = next(number for number, one in enumerate(held) if one == mark.arguments and type(one) is tuple)
    return _Fields(len(held), at[id(mark)], arguments, at[id(context)])
