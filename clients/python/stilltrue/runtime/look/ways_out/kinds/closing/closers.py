"""Code that may close a channel, stop a server, cancel all tasks or end the process, and so end the waits of unrelated parties.

Rules:

1. Nearly every program has its channels and servers in ``main``. So a holder counts only if the code still ahead of it
   (:mod:`~stilltrue.runtime.look.code.instructions_ahead`) closes or stops one, directly or in a function it names, or
   leaves its ``with`` block; and only if the holder makes progress (:mod:`~stilltrue.runtime.look.progress.analysis`) and gets
   there. Code beyond a loop that polls a flag counts only if the flag may be changed by a party that makes progress.
2. Signal handlers and exit handlers do nothing by themselves.
3. Application code that ends the process ends all its waits. The main thread ends its program when it is done, so there only
   code in the current loop counts. :mod:`~stilltrue.runtime.look.ways_out.kinds.exits` says what such code is, and what ends a
   loop or all of its tasks.
4. A thread that runs a loop for one task (``asyncio.run``) holds all its tasks: when that task ends, the others are cancelled.
   So they are when the program's own code closes an ``asyncio.Runner``.
5. A failure hook (:mod:`~stilltrue.runtime.look.ways_out.kinds.failure_hooks`) counts if a thread or task that makes progress
   may fail.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection import faulthandler_exit
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code, position_of
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.call_graph import named_ahead, named_by_callback, names_in, own_names_of
from stilltrue.runtime.look.called_code.given_to_c import functions_given_to_c
from stilltrue.runtime.look.called_code.indirect_calls import callables_kept
from stilltrue.runtime.look.called_code.methods import class_attributes
from stilltrue.runtime.look.code.attributes import UNKNOWN, named_values, value_of
from stilltrue.runtime.look.code.instructions_ahead import CLOSING, Ahead
from stilltrue.runtime.look.code.lookups import COMPUTED, LOOKUPS, looked_up, name_called, texts_near
from stilltrue.runtime.look.code.names import Receiver
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.progress.stack_ahead import Stretch, frames_of_task, own_frames_of, stretches
from stilltrue.runtime.look.ways_out.kinds.closing.closing_jobs import ClosingJobs
from stilltrue.runtime.look.ways_out.kinds.closing.dropped_at_end import called_at_end_of_task, called_at_end_of_thread
from stilltrue.runtime.look.ways_out.kinds.closing.finalization import (
    may_drop,
    may_drop_closing_object,
    removes_closing_items,
    removes_references,
)
from stilltrue.runtime.look.ways_out.kinds.closing.with_blocks import (
    block_generators,
    closed_at_exit,
    closed_by_own_exit,
    closes_others,
    entered_and_closed,
    may_close,
    may_own_channel,
)
from stilltrue.runtime.look.ways_out.kinds.exits import (
    callback_ends_loop,
    callback_ends_process,
    calls_kept_exit,
    cancels_all_tasks,
    ends_loop,
    ends_process,
    interrupts_any_thread,
)
from stilltrue.runtime.look.ways_out.kinds.failure_hooks import broken_pipe, hooks_of_failure
from stilltrue.runtime.look.ways_out.kinds.wakers import (
    callbacks_of_library,
    frame_roots,
    frames_in_packages,
    given_to_package,
    given_to_timer,
    signal_callbacks,
    socket_callbacks,
)
from stilltrue.runtime.waits.futures.own_futures import closes_only_own
from stilltrue.runtime.waits.holders.with_blocks import objects_of_blocks

_Functions = Sequence[tuple[CodeType, dict[str, Any]]]
"""Code of functions, each with its globals."""
ANYTHING = object()
"""A root that stands for every channel and server."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closer:
    """A thread, task or callback that may close, stop or cancel what can be reached from ``roots``; ``text`` is for people.

    ``names``: those along which its code goes. ``owner``: its task or thread (identity). ``progress`` returns whether it makes
    progress. ``tasks``: a loop of which it may cancel all tasks. ``process``: it may end the process.
    """

    text: str
    roots: tuple[Any, ...] = ()
    names: frozenset[str] = frozenset()
    owner: Any = None
    progress: Callable[[], Progress] = lambda: BY_ITSELF
    tasks: asyncio.AbstractEventLoop | None = None
    process: bool = False


def closers(places: Places, analysis: ProgressAnalysis, budget: Budget) -> Iterator[Closer]:
    """Every closer of the process."""
    jobs = ClosingJobs(budget)
    for place in places.threads.values():
        if place.ident != threading.get_ident():
            yield from _thread_closers(place, analysis, places, jobs, budget)
            yield from _item_callback_closers(place, analysis)
    for loop in places.loops():
        yield from _scheduled_closers(loop, analysis)
        for task in compat.tasks_of(loop) or ():
            yield from _task_closers(task, analysis, jobs)
            yield from _done_callback_closers(task, loop, analysis)

    for hook in hooks_of_failure(places):
        for closer in _callback_closers(hook.callback, (), hook.text, hook.loop):
            yield replace(closer, progress=functools.partial(analysis.of_failure, hook))
    if (writing := broken_pipe(places)) is not None:
        yield Closer(text=writing.text, process=True, progress=functools.partial(analysis.of_failure, writing))
    for one in functions_given_to_c():
        yield from _callback_closers(one, (), "which code in C may call")


def _scheduled_closers(loop: asyncio.AbstractEventLoop, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Closers among the timers, scheduled callbacks, readers and protocols of a loop, and what those of a package may call."""
    progress = functools.partial(analysis.of_loop, loop)
    for callback, arguments in socket_callbacks(loop):
        for closer in _callback_closers(callback, arguments, "called by its event loop", loop):
            yield replace(closer, progress=progress)
    for callback, arguments in map(compat.callback_of, compat.handles_of(loop) or ()):
        if not compat.is_asyncio(callback):
            for one, given in ((callback, arguments), *((one, ()) for one in given_to_package(callback))):
                for closer in _callback_closers(one, given, "scheduled on its event loop", loop):
                    yield replace(closer, progress=progress)


def _thread_closers(
    place: Place, analysis: ProgressAnalysis, places: Places, jobs: ClosingJobs, budget: Budget
) -> Iterator[Closer]:
    thread = compat.threads().get(place.ident)
    name = str(place.ident) if thread is None else thread.name
    loop = places.loop_threads.get(place.ident)
    progress = functools.partial(analysis.of_thread, place.ident)
    loops = (loop,) if loop is not None else tuple(places.loops())
    yield from _frame_closers(place.frames, f"thread {name}", place.ident, analysis, progress, loops, jobs)
    yield from _library_closers(place, name, analysis, jobs, budget)
    yield from _closers_at_end(called_at_end_of_thread(place.frames), f"thread {name}", place.ident, progress)
    if isinstance(thread, threading.Timer):
        carried = compat.thread_arguments(thread)
        for one in carried:
            if callable(one):
                yield from _callback_closers(one, carried, f"called by thread {name}, a timer")
        for one in given_to_timer(thread):
            yield from _callback_closers(one, (), f"called by a library in thread {name}, a timer")
    for frame in place.frames:
        for callback in compat.connectivity_callbacks(frame):
            yield from _callback_closers(callback, (), "called when a channel's connectivity changes")
        if frame.f_code.co_filename == compat.SCHED_FILE and frame.f_code.co_name == "run":
            yield Closer(text=f"thread {name}, a scheduler", roots=tuple(variables_of(frame).values()), owner=place.ident)
    main: Any = None if loop is None else compat.asyncio_run_task(place.frames)
    if main is not None:
        text = f"the end of asyncio.run()'s main task: {_position_of(main)}"
        yield Closer(text=text, owner=main, tasks=loop, progress=functools.partial(analysis.end_of, main))


def _closers_at_end(dropped: Iterable[Any], who: str, owner: Any, progress: Callable[[], Progress]) -> Iterator[Closer]:
    """Closers among the methods that are called for what a thread or task drops."""
    for one in dropped:
        for closer in _callback_closers(one, (), f"called at the end of {who}"):
            yield replace(closer, progress=progress, owner=owner)


def _library_closers(
    place: Place, name: str, analysis: ProgressAnalysis, jobs: ClosingJobs, budget: Budget
) -> Iterator[Closer]:
    """Closers among what a library will run in a thread: its callbacks, the tasks of trio."""
    progress = functools.partial(analysis.of_thread, place.ident)
    for callback, arguments in callbacks_of_library(frames_in_packages(place.frames)):
        if not budget.large_step():
            return
        for closer in _callback_closers(callback, arguments, f"called by a library in thread {name}"):
            yield replace(closer, progress=progress, owner=place.ident)
    for coroutine in compat.trio_coroutines(place.frames):
        who = f"a task of trio in thread {name}"
        yield from _frame_closers(own_frames_of(coroutine), who, coroutine, analysis, lambda: BY_ITSELF, (), jobs)


def _task_closers(task: Task, analysis: ProgressAnalysis, jobs: ClosingJobs) -> Iterator[Closer]:
    who, progress = f"task {task.get_name()}", functools.partial(analysis.of_task, task)
    yield from _closers_at_end(called_at_end_of_task(task), who, task, progress)
    blocks = block_generators(task)
    yield from _frame_closers(frames_of_task(task), who, task, analysis, progress, (task.get_loop(),), jobs, blocks)


def _item_callback_closers(place: Place, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Callbacks at the end of the executor item that a thread runs, and those for the results of a pool."""
    progress = functools.partial(analysis.of_thread, place.ident)
    for frame in place.frames:
        for callback in compat.result_callbacks(frame):
            yield from _callback_closers(callback, (), "called with a result of a pool")
    for callback in compat.item_callbacks(compat.running_item(list(place.frames))):
        for closer in _callback_closers(callback, (), "called when an executor item ends"):
            yield replace(closer, owner=place.ident, progress=progress)


def _done_callback_closers(task: Task, loop: asyncio.AbstractEventLoop, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Done callbacks of a task."""
    progress = functools.partial(analysis.of_task, task)
    how = f"called when task {task.get_name()} ends"
    for callback, _ in compat.callbacks_after(task):
        for closer in _callback_closers(callback, (), how, loop):
            yield replace(closer, owner=task, progress=progress)


def _position_of(task: Task) -> str:
    frame = next((frame for frame in frames_of_task(task) if is_application(frame.f_code)), None)
    return task.get_name() if frame is None else position_of(frame)


def progress_to(stretch: Stretch, analysis: ProgressAnalysis, progress: Callable[[], Progress]) -> Progress:
    """Whether a thread or task with this ``progress`` reaches ``stretch``."""
    return analysis.beyond(stretch, progress())


def _frame_closers(
    frames: Iterable[FrameType],
    who: str,
    owner: Any,
    analysis: ProgressAnalysis,
    own_progress: Callable[[], Progress],
    loops: Sequence[asyncio.AbstractEventLoop],
    jobs: ClosingJobs,
    blocks: Mapping[CodeType, Sequence[Any]] | None = None,
) -> Iterator[Closer]:
    """``loops``: those of which the frames may cancel all tasks: the own one, or any for a thread without."""
    for stretch in stretches(frames):
        frame, ahead = stretch.frame, stretch.ahead
        names = variables_of(frame)
        functions = list(named_ahead(ahead, frame)) if ahead.names or ahead.stored else []
        named = [code for code, _ in functions]
        roots = _roots(frame, names, ahead, functions, None if blocks is None else blocks.get(frame.f_code, ()))
        roots += _roots_of_blocks(frame) if blocks is None and ahead.exited else ()
        progress = functools.partial(progress_to, stretch, analysis, own_progress)
        closer = functools.partial(Closer, owner=owner, progress=progress)
        names_ahead = ahead.names if ahead.known else frozenset(frame.f_code.co_names)
        if roots:
            words = own_names_of(named) | names_ahead | ahead.stored if is_own_code(frame.f_code) else frozenset()
            yield closer(text=f"{who}, which may close or stop it: {position_of(frame)}", roots=roots, names=words)
        globals_of_called = (held for code, others in functions for held in named_values(code.co_names, others))
        if behind := jobs.behind((*frame_roots(frame, names), *globals_of_called)):
            yield closer(text=f"{who}, which may run a job that closes it: {position_of(frame)}", roots=behind)
        cancels = cancels_all_tasks(ahead.names.union(*map(names_in, ahead.functions)), named)
        for loop in loops:
            if cancels or _closes_runner(frame, names, ahead, loop):
                yield closer(text=f"{who}, which may cancel all tasks: {position_of(frame)}", tasks=loop)
        if compat.is_task(owner) and ends_loop(frame.f_code, names_ahead, named):
            yield closer(text=f"{who}, which may end its event loop: {position_of(frame)}", tasks=owner.get_loop())
        if interrupts_any_thread(names_ahead, named):
            yield closer(text=f"{who}, which may raise an exception in any thread: {position_of(frame)}", process=True)
        if owner == threading.main_thread().ident:
            ahead = ahead.in_loop()
            functions = list(named_ahead(ahead, frame)) if ahead.names else []
            names_ahead = ahead.names
        near = named_values(ahead.variables, ChainMap(names, frame.f_globals), ahead.attributes) if ahead.known else ()
        functions += [(one, frame.f_globals) for one in ahead.functions]
        ends = ends_process(frame.f_code, names_ahead, functions, frame_roots(frame, names))
        if ends or calls_kept_exit(frame.f_code, near, ahead.names, functions):
            yield closer(text=f"{who}, which may end the process: {position_of(frame)}", process=True)


def _roots(
    frame: FrameType, names: dict[str, Any], ahead: Ahead, functions: _Functions, blocks: Iterable[Any] | None
) -> tuple[Any, ...]:
    """The objects that a frame may still close, directly or in the ``functions`` it names.

    ``blocks``: the generators behind its open blocks; None if they cannot be found.
    """
    here = frame_roots(frame, names)
    here += tuple(class_attributes(here))
    if not ahead.known:
        return here
    named = [code for code, _ in functions]
    every = (*here, *_globals_of_closing(functions))
    if _closes_by_computed_name(frame, names, ahead, functions):
        return every
    if any(map(closes_others, (*named, *ahead.functions))) or may_drop_closing_object(ahead, named, names.values(), every):
        return every
    found: list[Any] = [one for name in ahead.names if compat.is_function(one := names.get(name)) and may_close(one)]
    near = named_values(ahead.variables, ChainMap(names, frame.f_globals), ahead.attributes)
    found += filter(may_close, callables_kept(near, ahead.attributes))
    for receiver in _closed_ahead(frame, names, ahead):
        value = value_of(receiver, names, frame.f_globals)
        if value is UNKNOWN or issubclass(type(value), type):  # ``map(Channel.close, channels)``
            return here
        found.append(value)
    for receiver in ahead.exited:
        value = value_of(receiver, names, frame.f_globals)
        if value is UNKNOWN:
            return here
        found += closed_at_exit(value)
        found += [ANYTHING] if blocks is None and may_own_channel(value) else []
    for receiver in ahead.entered:
        found += entered_and_closed(value_of(receiver, names, frame.f_globals))
    for generator in blocks or () if ahead.exited else ():
        found += compat.held_by_coroutine(generator)
    return tuple(found)


def _closed_ahead(frame: FrameType, names: dict[str, Any], ahead: Ahead) -> list[Receiver]:
    """What a frame still closes by name, without the files and connections that it has yet to open."""
    opens = closes_only_own(frame.f_code, CLOSING)
    return [one for one in ahead.closed if not (opens and one and one[0] not in names)]


def _roots_of_blocks(frame: FrameType) -> tuple[Any, ...]:
    """What the ends of the open blocks of a thread's frame close, whether or not their objects have a name."""
    return tuple(each for one in objects_of_blocks(frame) for each in closed_by_own_exit(one))


def _closes_runner(frame: FrameType, names: dict[str, Any], ahead: Ahead, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the code ahead closes the ``asyncio.Runner`` of ``loop``, or leaves its block: its other tasks are cancelled.

    Only for the program's own code: an installed server (hypercorn) ends its runner when it is told to stop.
    """
    if not is_own_code(frame.f_code):
        return False
    values = (value_of(receiver, names, frame.f_globals) for receiver in (*ahead.exited, *ahead.closed))
    return any(compat.loop_of_runner(one) is loop for one in values)


def _closes_by_computed_name(frame: FrameType, names: dict[str, Any], ahead: Ahead, functions: _Functions) -> bool:
    """Whether code ahead looks up a method by a computed name, or by a ``methodcaller``, that may be one that closes."""
    near = named_values(ahead.variables, ChainMap(names, frame.f_globals), ahead.attributes)
    if any(name in CLOSING for thing in near for name in name_called(thing)):
        return True
    here = () if LOOKUPS.isdisjoint(ahead.names) else (frame.f_code,)
    computing = [
        code for code in (*here, *(code for code, _ in functions)) if is_own_code(code) and COMPUTED in looked_up(code)
    ]
    return any(text in CLOSING for code in computing for text in texts_near(code, near))


def _globals_of_closing(functions: _Functions) -> Iterator[Any]:
    """The globals named by functions that close or drop something."""
    for code, names in functions:
        if closes_others(code) or removes_references(code):
            named = named_values(code.co_names, names)
            yield from (*named, *class_attributes(named))


def _callback_closers(
    callback: Any, arguments: Iterable[Any], how: str, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[Closer]:
    """Closers by a callback. One that runs on ``loop`` may also end the loop's run or cancel all its tasks."""
    name = f"{compat.name_of(callback)}, {how}"
    code, names, _ = compat.code_behind(callback)
    if code is None:
        if callback_ends_process(callback, arguments):
            yield Closer(text=f"{name}, which may end the process", process=True)
        if loop is not None and callback_ends_loop(callback):
            yield Closer(text=f"{name}, which may end its event loop", tasks=loop)
        if removes_closing_items(callback):
            yield Closer(text=name, roots=compat.bound_to(callback))
        return
    words = frozenset(code.co_names)
    functions = list(named_by_callback(callback, arguments))
    named = [code for code, _ in functions]
    near = (*arguments, *named_values(words, names))
    kept = (*near, *compat.bound_to(callback))
    if ends_process(code, words, functions, near) or calls_kept_exit(code, kept, words, functions):
        yield Closer(text=f"{name}, which may end the process", process=True)
    if loop is not None and ends_loop(code, words, named):
        yield Closer(text=f"{name}, which may end its event loop", tasks=loop)
    if loop is not None and cancels_all_tasks(names_in(code), named):
        yield Closer(text=f"{name}, which may cancel all tasks", tasks=loop)
    every = (callback, *arguments, *_globals_of_closing([(code, names), *functions]))
    codes = (code, *named)
    if code.co_name in CLOSING or any(map(closes_others, codes)) or may_drop(codes, every):
        yield Closer(text=name, roots=(*every, *named_values(code.co_names, names)), names=own_names_of(codes))


def closers_after_calls(open_calls: Iterable[Any]) -> Iterator[Closer]:
    """Closers among the done callbacks of open calls."""
    for call in open_calls:
        for callback in compat.end_callbacks(call) or ():
            yield from _callback_closers(callback, (), "called at the end of another call")


def signal_closers(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Closer]:
    """Alarms that end the process, and the closers among the handlers of signals to come."""
    left = faulthandler_exit.seconds_to_exit()
    if left is not None:
        yield Closer(text=f"faulthandler, which ends the process in {left:.1f} s", process=True)
    for number in map(compat.SIGNALS_OF_ALARMS.__getitem__, compat.alarms()):
        if signal.getsignal(number) is signal.SIG_DFL:
            yield Closer(text=f"{number.name}, which ends the process", process=True)
    for text, (handler, arguments), loop in signal_callbacks(loops):
        yield from _callback_closers(handler, arguments, text, loop)
