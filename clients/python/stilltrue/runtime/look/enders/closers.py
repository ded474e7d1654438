"""Who may close a channel, stop a server, or cancel all tasks: that ends the waits of parties whom they do not know at all.

Rules:

1. Nearly every program has its channels and servers in ``main``. So who has one counts only where code that is still ahead of
   it (:mod:`~stilltrue.runtime.look.code.ahead`) closes or stops it, by itself or in a function that it names, or leaves its
   ``with`` block; and only if it goes on (:mod:`~stilltrue.runtime.look.progress.analysis`), and comes there: beyond a loop
   that polls a flag, only if somebody who goes on changes the flag.
2. Handlers of signals, and what is called at exit, do nothing by themselves.
3. Who names ``all_tasks`` and speaks of cancelling has all the tasks of its loop. So has who runs a loop for one task
   (``asyncio.run``): when that task ends, the others are cancelled.
"""

from __future__ import annotations

import asyncio
import functools
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import RecordedMethod
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.ahead import CLOSING, Ahead
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, attributes_of, value_of
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.look.code.reachable_names import codes_named
from stilltrue.runtime.look.enders.wakers import roots_of
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis, frames_of_task
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.progress.stretches import Stretch, stretches

_ALL_TASKS = "all_tasks"
_SHELLS = ("stilltrue.sync.channel", "stilltrue.aio.channel")
_OWNED = re.compile(r"channel|server|stub|grpc|client|connect", re.I)
ANYTHING = object()
"""Among what can be reached from a closer: every channel and server."""
_CLOSING_NAMED = CLOSING - {"terminate"}
"""In functions that are named only: whatever ends a child process names ``terminate``, too."""
_CANCELLING = frozenset({"cancel", "throw"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closer:
    """Somebody who may close, stop or cancel what can be reached from ``roots``: ``text`` for people.

    ``of`` is the task or thread (its identity) that it is; ``progress`` says whether it goes on. ``tasks``: the loop all of
    whose tasks it may cancel.
    """

    text: str
    roots: tuple[Any, ...] = ()
    of: Any = None
    progress: Callable[[], Progress] = lambda: BY_ITSELF
    tasks: asyncio.AbstractEventLoop | None = None


def closers(places: Places, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Every closer of the process."""
    for place in places.threads.values():
        if place.ident != threading.get_ident():
            yield from _of_thread(place, analysis, places)
    for loop in places.loop_threads.values():
        for handle in compat.handles_of(loop) or ():
            callback, arguments = compat.called_by(handle)
            if not compat.is_asyncio(callback):
                progress = functools.partial(analysis.of_loop, loop)
                for closer in _of_callback(callback, arguments, "scheduled on its event loop"):
                    yield replace(closer, progress=progress)
        for task in compat.tasks_of(loop) or ():
            yield from _of_task(task, analysis)


def _of_thread(place: Place, analysis: ProgressAnalysis, places: Places) -> Iterator[Closer]:
    thread = compat.threads().get(place.ident)
    name = str(place.ident) if thread is None else thread.name

    def progress() -> Progress:
        return analysis.of_thread(place.ident)

    loop = places.loop_threads.get(place.ident)
    yield from _of_frames(place.frames, f"thread {name}", place.ident, _Going(analysis, progress), loop)
    if isinstance(thread, threading.Timer):
        carried = compat.carried_by(thread)
        for one in carried:
            if callable(one):
                yield from _of_callback(one, carried, f"called by thread {name}, a timer")
    for frame in place.frames:
        if frame.f_code.co_filename == compat.SCHED_FILE and frame.f_code.co_name == "run":
            yield Closer(text=f"thread {name}, a scheduler", roots=tuple(variables_of(frame).values()), of=place.ident)
    main: Any = None if loop is None else compat.run_by_asyncio(place.frames)
    if main is not None:
        text = f"the end of what asyncio.run() runs: {_position_of(main)}"
        yield Closer(text=text, of=main, tasks=loop, progress=functools.partial(analysis.end_of, main))


def _of_task(task: Task, analysis: ProgressAnalysis) -> Iterator[Closer]:
    def progress() -> Progress:
        return analysis.of_task(task)

    going = _Going(analysis, progress)
    yield from _of_frames(frames_of_task(task), f"task {task.get_name()}", task, going, task.get_loop(), _blocks_of(task))


def _position_of(task: Task) -> str:
    frame = next((frame for frame in frames_of_task(task) if is_application(frame.f_code)), None)
    return task.get_name() if frame is None else position_of(frame)


@dataclass(frozen=True, slots=True)
class _Going:
    """Whether a thread or task goes on, and comes to a stretch of what is ahead of it."""

    analysis: ProgressAnalysis
    progress: Callable[[], Progress]

    def to(self, stretch: Stretch) -> Callable[[], Progress]:
        """Whether it comes there."""
        return lambda: self.analysis.beyond(stretch, self.progress())


def _of_frames(
    frames: Iterable[FrameType],
    who: str,
    of: Any,
    going: _Going,
    loop: asyncio.AbstractEventLoop | None,
    blocks: Mapping[CodeType, Sequence[Any]] | None = None,
) -> Iterator[Closer]:
    for stretch in stretches(frames):
        frame, ahead = stretch.frame, stretch.ahead
        names = variables_of(frame)
        named = list(codes_named(ahead.variables, ahead.attributes, frame.f_globals, names.values())) if ahead.names else []
        roots = _roots(frame, names, ahead, named, None if blocks is None else blocks.get(frame.f_code, ()))
        progress = going.to(stretch)
        if roots:
            yield Closer(text=f"{who}, which may close or stop it: {position_of(frame)}", roots=roots, of=of, progress=progress)
        if loop is not None and _cancels_all(ahead, named):
            yield Closer(text=f"{who}, which may cancel all tasks: {position_of(frame)}", of=of, progress=progress, tasks=loop)


def _cancels_all(ahead: Ahead, named: Iterable[CodeType]) -> bool:
    """Rule 3."""
    names = ahead.names.union(*(code.co_names for code in named))
    return _ALL_TASKS in names and not _CANCELLING.isdisjoint(names)


def _roots(
    frame: FrameType, names: dict[str, Any], ahead: Ahead, named: Iterable[CodeType], blocks: Iterable[Any] | None
) -> tuple[Any, ...]:
    """What a frame may still close; ``blocks``: the generators behind the blocks that it is in; None: they cannot be found."""
    if not ahead.known or any(map(_closes, named)):
        return roots_of(frame, names)
    found: list[Any] = [one for name in ahead.names if _is_closing_callable(one := names.get(name))]
    for receiver in ahead.closed:
        value = value_of(receiver, names, frame.f_globals)
        if value is UNKNOWN:
            return roots_of(frame, names)
        found.append(value)
    for receiver in ahead.left:
        value = value_of(receiver, names, frame.f_globals)
        if value is UNKNOWN:
            return roots_of(frame, names)
        found += _entered(value)
        found += [ANYTHING] if blocks is None and _may_own(value) else []
    for generator in blocks or () if ahead.left else ():
        found += compat.names_in(generator)
    return tuple(found)


def _entered(value: Any) -> Iterator[Any]:
    """What may be closed at the end of a block that has ``value``: by itself, or by the generator function that it names.

    A block that has a stub (``with connected() as stub``) closes its channel.
    """
    yield value
    inner = value if type(value) is FunctionType else None
    for function in (inner, *(compat.bound_to(inner) if inner is not None else ())):  # behind ``contextmanager``
        if type(function) is FunctionType and _closes(function.__code__):
            yield function
            yield from (function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__)
    for one in (value, *attributes_of(value)):
        method = getattr(one, "_method", None) if type(one).__module__ in _SHELLS else None
        if isinstance(method, RecordedMethod):
            yield method.dialled()


def _may_own(value: Any) -> bool:
    """Whether the generator behind a block may have made the channel or the server that it closes."""
    functions = (value, *compat.bound_to(value)) if type(value) is FunctionType else ()
    codes = [one.__code__ for one in functions if type(one) is FunctionType and _closes(one.__code__)]
    return any(_OWNED.search(name) for code in codes for name in (*code.co_names, *code.co_varnames, *code.co_freevars))


def _blocks_of(task: Task) -> dict[CodeType, list[Any]]:
    """By the code of each of its frames, the generators behind the blocks that a task is in."""
    found: dict[CodeType, list[Any]] = {}
    for one in compat.chain_of(task.get_coro()):
        code = compat.code_of(one)
        if code is not None:
            exits = (getattr(held, "__self__", None) for held in compat.names_in(one) if type(held) is MethodType)
            inner = (attribute_of(manager, "gen") for manager in exits)
            found.setdefault(code, []).extend(gen for gen in inner if compat.code_of(gen) is not None)
    return found


def _closes(code: CodeType) -> bool:
    if not _CLOSING_NAMED.isdisjoint((*mentioned_in(code), *(one for one in code.co_consts if isinstance(one, str)))):
        return True
    return any(_closes(one) for one in code.co_consts if isinstance(one, CodeType))


def _is_closing_callable(thing: Any) -> bool:
    code, _, _ = compat.called_in(thing) if compat.is_function(thing) else (None, {}, None)
    return code is not None and (code.co_name in CLOSING or _closes(code))


def _of_callback(callback: Any, arguments: Iterable[Any], how: str) -> Iterator[Closer]:
    code, names, _ = compat.called_in(callback)
    if code is None:
        return
    named = codes_named(code.co_names, code.co_names, names, (*compat.bound_to(callback), *arguments))
    if code.co_name in CLOSING or _closes(code) or any(map(_closes, named)):
        others = (names[name] for name in code.co_names if name in names)
        yield Closer(text=f"{compat.name_of(callback)}, {how}", roots=(callback, *arguments, *others))


def of_calls(made: Iterable[Any]) -> Iterator[Closer]:
    """Those that are called at the end of calls that are open."""
    for call in made:
        for callback in compat.callbacks_of_made(call) or ():
            yield from _of_callback(callback, (), "called at the end of another call")


def of_alarm() -> Iterator[Closer]:
    """What a signal calls in the main thread when the alarm that is set goes off."""
    seconds, _ = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM) if seconds else None
    if callable(handler):
        yield from _of_callback(handler, (), "SIGALRM's handler")
