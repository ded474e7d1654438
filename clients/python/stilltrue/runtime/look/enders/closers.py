"""Who may close a channel, stop a server, cancel all tasks, or end the process, and so the waits of parties unknown to them.

Rules:

1. Nearly every program has its channels and servers in ``main``. So who has one counts only where code that is still ahead of
   it (:mod:`~stilltrue.runtime.look.code.ahead`) closes or stops it, by itself or in a function that it names, or leaves its
   ``with`` block; and only if it goes on (:mod:`~stilltrue.runtime.look.progress.analysis`), and comes there: beyond a loop
   that polls a flag, only if somebody who goes on changes the flag.
2. Handlers of signals, and what is called at exit, do nothing by themselves.
3. The application's own code that ends the process (``os._exit``, ``os.execv``, a signal to its own process) ends all waits of
   it. The main thread ends its program when that is done, and who asks for the parent process (``getppid``) when that has gone:
   neither counts.
4. A task or a callback of an event loop whose ``SystemExit`` or ``KeyboardInterrupt`` leaves it ends all tasks of the loop.
5. Who names ``all_tasks`` and speaks of cancelling has all the tasks of its loop. So has who runs a loop for one task
   (``asyncio.run``): when that task ends, the others are cancelled.
"""

from __future__ import annotations

import asyncio
import dis
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
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.ahead import CLOSING, Ahead
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, attributes_of, value_of
from stilltrue.runtime.look.code.called import codes_named
from stilltrue.runtime.look.code.names import ATTRIBUTES, chain_before, mentioned_in
from stilltrue.runtime.look.enders.leaving import builtin_in, is_exit, leaves_its_loop
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
_EXITING = frozenset({"_exit", "raise_signal"}) | {f"exec{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")}
_KILLING_ITSELF = frozenset({"kill", "getpid"})


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
                for closer in (*_of_callback(callback, arguments, how), *_leaving(callback, arguments, how, loop)):
                    yield replace(closer, progress=progress)
        for task in compat.tasks_of(loop) or ():
            yield from _of_task(task, analysis)
            yield from _at_end_of(task, loop, analysis)


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
    yield from _of_frames(frames_of_task(task), f"task {task.get_name()}", task, actor, task.get_loop(), _blocks_of(task))


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
            for closer in (*_of_callback(callback, (), how), *_leaving(callback, (), how, loop)):
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
        named = list(codes_named(ahead.variables, ahead.attributes, frame.f_globals, names.values())) if ahead.names else []
        roots = _roots(frame, names, ahead, named, None if blocks is None else blocks.get(frame.f_code, ()))
        progress = actor.to(stretch)
        if roots:
            yield Closer(text=f"{who}, which may close or stop it: {position_of(frame)}", roots=roots, of=of, progress=progress)
        if loop is not None and _cancels_all(ahead, named):
            yield Closer(text=f"{who}, which may cancel all tasks: {position_of(frame)}", of=of, progress=progress, tasks=loop)
        names_ahead = ahead.names if ahead.known else frozenset(frame.f_code.co_names)
        if compat.is_task(of) and leaves_its_loop(frame.f_code, names_ahead, named):
            text = f"{who}, which may end its event loop: {position_of(frame)}"
            yield Closer(text=text, of=of, progress=progress, tasks=loop)
        if of != threading.main_thread().ident and _exits(frame.f_code, names_ahead, named):
            yield Closer(text=f"{who}, which may end the process: {position_of(frame)}", of=of, progress=progress, process=True)


def _exits(code: CodeType, names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 3, of a function in whose code these names are ahead, and those of the functions ``named``."""
    if not is_own_code(code):
        return False
    if any(map(_aborts, (code, *named))):
        return True
    every = [names, *(frozenset(code.co_names) for code in named if is_own_code(code))]
    if any("getppid" in one for one in every):
        return False
    return any(not _EXITING.isdisjoint(one) or one >= _KILLING_ITSELF for one in every)


@kept_by_code
def _aborts(code: CodeType) -> bool:
    """Whether a function of the application's own calls ``os.abort``; gRPC's contexts have a method of that name."""
    every = list(dis.get_instructions(code))
    aborting = (index for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == "abort")
    return is_own_code(code) and any(chain_before(every, index) == ("os",) for index in aborting)


def _cancels_all(ahead: Ahead, named: Iterable[CodeType]) -> bool:
    """Rule 5."""
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
        if builtin_in(callback) in _EXITING | {"abort"}:
            yield Closer(text=f"{compat.name_of(callback)}, {how}, which may end the process", process=True)
        return
    named = list(codes_named(code.co_names, code.co_names, names, (*compat.bound_to(callback), *arguments)))
    if _exits(code, frozenset(code.co_names), named):
        yield Closer(text=f"{compat.name_of(callback)}, {how}, which may end the process", process=True)
    if code.co_name in CLOSING or _closes(code) or any(map(_closes, named)):
        others = (names[name] for name in code.co_names if name in names)
        yield Closer(text=f"{compat.name_of(callback)}, {how}", roots=(callback, *arguments, *others))


def _leaving(callback: Any, arguments: Iterable[Any], how: str, loop: asyncio.AbstractEventLoop) -> Iterator[Closer]:
    """A callback of an event loop that may end its run."""
    code, names, _ = compat.called_in(callback)
    others = () if code is None else codes_named(code.co_names, code.co_names, names, (*compat.bound_to(callback), *arguments))
    if is_exit(callback) or (code is not None and leaves_its_loop(code, frozenset(code.co_names), others)):
        yield Closer(text=f"{compat.name_of(callback)}, {how}, which may end its event loop", tasks=loop)


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
    elif seconds and handler is signal.SIG_DFL:
        yield Closer(text="SIGALRM, which ends the process", process=True)
