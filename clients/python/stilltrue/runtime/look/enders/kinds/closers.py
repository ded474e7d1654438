"""Who may close a channel, stop a server, cancel all tasks, or end the process, and so the waits of parties unknown to them.

Rules:

1. Nearly every program has its channels and servers in ``main``. So who has one counts only where code that is still ahead of
   it (:mod:`~stilltrue.runtime.look.code.ahead`) closes or stops it, by itself or in a function that it names, or leaves its
   ``with`` block; and only if it goes on (:mod:`~stilltrue.runtime.look.progress.analysis`), and comes there: beyond a loop
   that polls a flag, only if somebody who goes on changes the flag.
2. Handlers of signals, and what is called at exit, do nothing by themselves.
3. The application's own code that ends the process ends all waits of it; in the main thread, which ends its program when it is
   done, only within the loop in which that stands. What such code is, and what ends a loop or all tasks of it, is said in
   :mod:`~stilltrue.runtime.look.enders.kinds.exits`.
4. Who runs a loop for one task (``asyncio.run``) has all the tasks of it: when that task ends, the others are cancelled.
5. A hook for failures (:mod:`~stilltrue.runtime.look.enders.kinds.failing`) counts when somebody goes on who may fail.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection import dumps
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.ahead import CLOSING, Ahead
from stilltrue.runtime.look.code.attributes import UNKNOWN, value_of
from stilltrue.runtime.look.code.called import named_ahead, named_by_callback
from stilltrue.runtime.look.enders.kinds.blocks import blocks_of, closes, entered, may_own
from stilltrue.runtime.look.enders.kinds.exits import (
    cancels_all,
    ends_its_loop,
    ends_process,
    interrupts_any,
    is_end_of_loop,
    is_end_of_process,
)
from stilltrue.runtime.look.enders.kinds.failing import hooks_of_failure
from stilltrue.runtime.look.enders.kinds.letting_go import drops, lets_go, may_let_go, takes_out
from stilltrue.runtime.look.enders.kinds.wakers import roots_of
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.progress.stretches import Stretch, frames_of_task, stretches

_Functions = Sequence[tuple[CodeType, dict[str, Any]]]
"""Their code, with their globals."""
ANYTHING = object()
"""Among what can be reached from a closer: every channel and server."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closer:
    """Somebody who may close, stop or cancel what can be reached from ``roots``: ``text`` for people.

    ``of`` is the task or thread (its identity) that it is; ``progress`` says whether it goes on. ``tasks``: the loop all of
    whose tasks it may cancel. ``process``: it may end the process.
    """

    text: str
    roots: tuple[Any, ...] = ()
    of: Any = None
    progress: Callable[[], Progress] = lambda: BY_ITSELF
    tasks: asyncio.AbstractEventLoop | None = None
    process: bool = False


def closers(places: Places, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Every closer of the process."""
    for place in places.threads.values():
        if place.ident != threading.get_ident():
            yield from _of_thread(place, analysis, places)
            yield from _at_end_of_item(place, analysis)
    for loop in places.loop_threads.values():
        for handle in compat.handles_of(loop) or ():
            callback, arguments = compat.called_by(handle)
            if not compat.is_asyncio(callback):
                progress = functools.partial(analysis.of_loop, loop)
                how = "scheduled on its event loop"
                for closer in _of_callback(callback, arguments, how, loop):
                    yield replace(closer, progress=progress)
        for task in compat.tasks_of(loop) or ():
            yield from _of_task(task, analysis)
            yield from _at_end_of(task, loop, analysis)

    for hook in hooks_of_failure(places):
        for closer in _of_callback(hook.callback, (), hook.text, hook.loop):
            yield replace(closer, progress=functools.partial(analysis.of_failure, hook))


def _of_thread(place: Place, analysis: ProgressAnalysis, places: Places) -> Iterator[Closer]:
    thread = compat.threads().get(place.ident)
    name = str(place.ident) if thread is None else thread.name

    def progress() -> Progress:
        return analysis.of_thread(place.ident)

    loop = places.loop_threads.get(place.ident)
    yield from _of_frames(place.frames, f"thread {name}", place.ident, _Actor(analysis, progress), loop)
    if isinstance(thread, threading.Timer):
        carried = compat.carried_by(thread)
        for one in carried:
            if callable(one):
                yield from _of_callback(one, carried, f"called by thread {name}, a timer")
    for frame in place.frames:
        for callback in compat.told_of_connectivity(frame):
            yield from _of_callback(callback, (), "called when a channel's connectivity changes")
        if frame.f_code.co_filename == compat.SCHED_FILE and frame.f_code.co_name == "run":
            yield Closer(text=f"thread {name}, a scheduler", roots=tuple(variables_of(frame).values()), of=place.ident)
    main: Any = None if loop is None else compat.run_by_asyncio(place.frames)
    if main is not None:
        text = f"the end of what asyncio.run() runs: {_position_of(main)}"
        yield Closer(text=text, of=main, tasks=loop, progress=functools.partial(analysis.end_of, main))


def _of_task(task: Task, analysis: ProgressAnalysis) -> Iterator[Closer]:
    def progress() -> Progress:
        return analysis.of_task(task)

    actor = _Actor(analysis, progress)
    yield from _of_frames(frames_of_task(task), f"task {task.get_name()}", task, actor, task.get_loop(), blocks_of(task))


def _at_end_of_item(place: Place, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """What is called when the item of an executor is over that a thread runs."""
    progress = functools.partial(analysis.of_thread, place.ident)
    for callback in compat.callbacks_of_item(compat.item_run_by(list(place.frames))):
        for closer in _of_callback(callback, (), "called when an executor's item is over"):
            yield replace(closer, of=place.ident, progress=progress)


def _at_end_of(task: Task, loop: asyncio.AbstractEventLoop, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """What is called when a task has ended."""
    progress = functools.partial(analysis.of_task, task)
    how = f"called when task {task.get_name()} ends"
    for callback, _ in compat.callbacks_of(task):
        if not compat.is_asyncios_own(callback):
            for closer in _of_callback(callback, (), how, loop):
                yield replace(closer, of=task, progress=progress)


def _position_of(task: Task) -> str:
    frame = next((frame for frame in frames_of_task(task) if is_application(frame.f_code)), None)
    return task.get_name() if frame is None else position_of(frame)


@dataclass(frozen=True, slots=True)
class _Actor:
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
    actor: _Actor,
    loop: asyncio.AbstractEventLoop | None,
    blocks: Mapping[CodeType, Sequence[Any]] | None = None,
) -> Iterator[Closer]:
    for stretch in stretches(frames):
        frame, ahead = stretch.frame, stretch.ahead
        names = variables_of(frame)
        functions = list(named_ahead(ahead, frame)) if ahead.names else []
        named = [code for code, _ in functions]
        roots = _roots(frame, names, ahead, functions, None if blocks is None else blocks.get(frame.f_code, ()))
        progress = actor.to(stretch)
        if roots:
            yield Closer(text=f"{who}, which may close or stop it: {position_of(frame)}", roots=roots, of=of, progress=progress)
        if loop is not None and cancels_all(ahead.names, named):
            yield Closer(text=f"{who}, which may cancel all tasks: {position_of(frame)}", of=of, progress=progress, tasks=loop)
        names_ahead = ahead.names if ahead.known else frozenset(frame.f_code.co_names)
        if compat.is_task(of) and ends_its_loop(frame.f_code, names_ahead, named):
            text = f"{who}, which may end its event loop: {position_of(frame)}"
            yield Closer(text=text, of=of, progress=progress, tasks=loop)
        if interrupts_any(names_ahead, named):
            text = f"{who}, which may raise an exception in any thread: {position_of(frame)}"
            yield Closer(text=text, of=of, progress=progress, process=True)
        if of == threading.main_thread().ident:
            ahead = ahead.in_loop()
            functions = list(named_ahead(ahead, frame)) if ahead.names else []
            names_ahead = ahead.names
        if ends_process(frame.f_code, names_ahead, functions, (*names.values(), *_globals_of_code(frame))):
            yield Closer(text=f"{who}, which may end the process: {position_of(frame)}", of=of, progress=progress, process=True)


def _roots(
    frame: FrameType, names: dict[str, Any], ahead: Ahead, functions: _Functions, blocks: Iterable[Any] | None
) -> tuple[Any, ...]:
    """What a frame may still close, by itself or by the ``functions`` that it names.

    ``blocks``: the generators behind the blocks that it is in; None: they cannot be found.
    """
    if not ahead.known:
        return roots_of(frame, names)
    named = [code for code, _ in functions]
    every = (*roots_of(frame, names), *_globals_of(functions))
    if any(map(closes, named)) or may_let_go(ahead, named, names.values(), every):
        return every
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
        found += entered(value)
        found += [ANYTHING] if blocks is None and may_own(value) else []
    for generator in blocks or () if ahead.left else ():
        found += compat.names_in(generator)
    return tuple(found)


def _globals_of_code(frame: FrameType) -> Iterator[Any]:
    """The globals that a frame's code speaks of."""
    return (frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals)


def _globals_of(functions: _Functions) -> Iterator[Any]:
    """The globals that functions speak of which close something, or let go of it."""
    for code, names in functions:
        if closes(code) or drops(code):
            yield from (names[name] for name in code.co_names if name in names)


def _is_closing_callable(thing: Any) -> bool:
    code, _, _ = compat.called_in(thing) if compat.is_function(thing) else (None, {}, None)
    return code is not None and (code.co_name in CLOSING or closes(code))


def _of_callback(
    callback: Any, arguments: Iterable[Any], how: str, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[Closer]:
    """A callback; one that is called on ``loop`` may also end the run of that, or cancel all tasks."""
    name = f"{compat.name_of(callback)}, {how}"
    code, names, _ = compat.called_in(callback)
    if code is None:
        if is_end_of_process(callback, arguments):
            yield Closer(text=f"{name}, which may end the process", process=True)
        if loop is not None and is_end_of_loop(callback):
            yield Closer(text=f"{name}, which may end its event loop", tasks=loop)
        if takes_out(callback):
            yield Closer(text=name, roots=compat.bound_to(callback))
        return
    words = frozenset(code.co_names)
    functions = list(named_by_callback(callback, arguments))
    named = [code for code, _ in functions]
    if ends_process(code, words, functions, (*arguments, *(names[name] for name in words if name in names))):
        yield Closer(text=f"{name}, which may end the process", process=True)
    if loop is not None and ends_its_loop(code, words, named):
        yield Closer(text=f"{name}, which may end its event loop", tasks=loop)
    if loop is not None and cancels_all(words, named):
        yield Closer(text=f"{name}, which may cancel all tasks", tasks=loop)
    every = (callback, *arguments, *_globals_of([(code, names), *functions]))
    if code.co_name in CLOSING or closes(code) or any(map(closes, named)) or lets_go((code, *named), every):
        others = (names[name] for name in code.co_names if name in names)
        yield Closer(text=name, roots=(*every, *others))


def of_calls(made: Iterable[Any]) -> Iterator[Closer]:
    """Those that are called at the end of calls that are open."""
    for call in made:
        for callback in compat.callbacks_of_made(call) or ():
            yield from _of_callback(callback, (), "called at the end of another call")


def of_alarms(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Closer]:
    """What an alarm that is set calls in the main thread or by an event loop, or the end of the process that it is."""
    left = dumps.seconds_to_exit()
    if left is not None:
        yield Closer(text=f"faulthandler, which ends the process in {left:.1f} s", process=True)
    handlers = [(loop, compat.signal_handlers_of(loop)) for loop in loops]
    for timer in compat.alarms():
        number = compat.SIGNALS_OF_ALARMS[timer]
        handler = signal.getsignal(number)
        if callable(handler):
            yield from _of_callback(handler, (), f"{number.name}'s handler")
        elif handler is signal.SIG_DFL:
            yield Closer(text=f"{number.name}, which ends the process", process=True)
        for loop, known in handlers:
            if number in known:
                yield from _of_callback(*compat.called_by(known[number]), f"{number.name}'s handler", loop)
