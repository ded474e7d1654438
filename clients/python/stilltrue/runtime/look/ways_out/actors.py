"""Actors: whoever may act in this process. Tasks and threads are found here, the rest in :mod:`.timers_and_callbacks`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_library, is_ours, position_of
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.called_code.indirect_calls import functions_behind
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames
from stilltrue.runtime.look.code.attributes import attributes_of
from stilltrue.runtime.look.ways_out.actor_code import (
    callback_may_end,
    callback_roots,
    context_values,
    frame_may_end,
    globals_of,
    named_in_consoles,
    names_ahead,
    names_by_all,
    no_names,
    own_reached,
    own_reached_by_all,
)
from stilltrue.runtime.look.ways_out.forgotten_tasks import without_forgotten_tasks
from stilltrue.runtime.look.ways_out.kinds.closing.dropped_at_end import called_at_end_of_task, called_at_end_of_thread
from stilltrue.runtime.look.ways_out.kinds.wakers import frames_in_packages
from stilltrue.runtime.waits.holders.with_blocks import objects_of_blocks

_CALLING_NOTHING = frozenset(
    {"asyncio", "concurrent", "multiprocessing", "queue", "runpy", "selectors", "socket", "ssl", "subprocess", "threading"}
)
"""Modules of the standard library whose frames are read elsewhere, or call nothing that they were given."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Actor:
    """A potential actor: ``text`` for people, its ``party``, if any, and the objects it holds.

    ``owner``: the task, thread (its identity) or call that it is or belongs to. ``ends``, ``borrowed``: see :meth:`Reach.held`.
    ``fires_at``: the loop time at which a timer that certainly ends its target fires. ``is_context_callback``: a callback that
    the context of a served call runs when the call is over. ``extra_roots``: further roots for :class:`Releasers`;
    ``undoes_through`` returns the roots for these instead of ``roots``, by the names of the operations that undo;
    ``calls_through``, what counts instead of the globals that its code may call.
    ``is_module``: the roots are a module's globals, shared by all code of the module. ``only_calls``: it can only call what it
    reaches, so only what such a call ends counts. ``led_by``: the names along which its code goes, and what it hands on.
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
    undoes_through: Callable[[frozenset[str]], tuple[Any, ...]] | None = None
    calls_through: Callable[[frozenset[str], tuple[Any, ...]], tuple[Any, ...]] | None = None
    is_module: bool = False
    only_calls: bool = False
    names_reached: Callable[[bool], ReachableNames] = no_names
    led_by: Callable[[], ReachableNames] = ReachableNames


def tasks(places: Places, running: Iterable[Task]) -> Iterator[Actor]:
    """The tasks of a loop and their done callbacks."""
    main = [compat.asyncio_run_task(place.frames) for place in places.threads.values()]
    for task in running:
        party = places.party_of(task)
        place = places.of_task(task, party)
        own = {id(one) for one in place.coroutines}
        wrapping = set(map(id, compat.wrappers_of(task)))
        speaking = False
        for one in reversed(place.coroutines):
            frame = frame_of(one)
            if frame is None or is_ours(frame.f_code) or compat.is_grpc(frame.f_code.co_filename):
                continue
            if is_library(frame.f_code):
                yield from _caller_in_library(frame, f"task {task.get_name()}", party=party, owner=task)
            ends = not is_library(frame.f_code) and frame_may_end(frame)
            if id(one) in wrapping and not ends:
                continue
            text = f"task {task.get_name()}, which holds it: {place.stack()[0]}"
            held = without_forgotten_tasks(frame, compat.held_by_coroutine(one), may_return=task in main)
            yield Actor(
                text=text,
                roots=tuple(each for each in held if id(each) not in own),
                party=party,
                owner=task,
                ends=ends,
                names_reached=no_names if is_library(frame.f_code) else partial(names_ahead, frame),
                led_by=partial(own_reached, frame),
            )
            if ends:
                speaking = True
                yield _of_globals(text, frame, party=party, owner=task)
            if is_application(frame.f_code):
                yield _of_calls(text, frame, party=party, owner=task)
        if speaking:
            text = f"task {task.get_name()}, which has it in its context: {place.stack()[0]}"
            yield Actor(text=text, roots=context_values(task), party=party, owner=task, ends=True, borrowed=True)
        called = tuple(callback for callback, _ in compat.callbacks_after(task))
        if called:
            yield of_callbacks(f"a done callback of task {task.get_name()}", called, party=party, owner=task)
        yield from _dropping(called_at_end_of_task(task), f"task {task.get_name()}", party=party, owner=task)


def threads(places: Iterable[Place]) -> Iterator[Actor]:
    """All threads."""
    known = compat.threads()
    for place in places:
        thread = known.get(place.ident)
        name = str(place.ident) if thread is None else thread.name
        carried = () if thread is None else compat.thread_arguments(thread)
        undone_through = _without_running(carried, place)
        in_packages = frames_in_packages(place.frames)
        for frame in place.frames:
            code = frame.f_code
            yield from _called_in(frame, place, name)
            if is_ours(code) or compat.is_grpc(code.co_filename) or compat.is_loop_code(code):
                continue
            if is_library(code) or any(one is frame for one in in_packages):
                yield from _caller_in_library(frame, f"thread {name}", party=place.party, owner=place.ident)
            if is_library(code):
                continue
            whole_module = code.co_name == "<module>"
            left = objects_of_blocks(frame)
            ends = frame_may_end(frame, exits=not whole_module, left=left)
            text = f"thread {name}, which holds it: {position_of(frame)}"
            roots = (*variables_of(frame).values(), *left)
            if ends and issubclass(type(thread), threading.Thread) and any(one is thread for one in roots):
                roots += attributes_of(thread)  # it runs its own method
            yield Actor(
                text=text,
                roots=roots,
                party=place.party,
                owner=place.ident,
                ends=ends,
                borrowed=whole_module,
                extra_roots=undone_through,
                is_module=whole_module,
                names_reached=partial(names_ahead, frame),
                led_by=partial(own_reached, frame),
            )
            if ends or (whole_module and frame_may_end(frame)):  # its exit handlers may, once the thread goes on
                yield _of_globals(text, frame, party=place.party, owner=place.ident)
            if is_application(code) and not whole_module:
                yield _of_calls(text, frame, party=place.party, owner=place.ident)
        yield from _dropping(called_at_end_of_thread(place.frames), f"thread {name}", party=place.party, owner=place.ident)
        if carried:
            text = f"thread {name}, which was started with it"
            begun = any(is_application(frame.f_code) for frame in place.frames)
            held = undone_through if begun else carried  # of a function that runs, only what its frame has ahead
            called = [one for one in held if callable(one)]
            yield Actor(
                text=text,
                roots=(roots := callback_roots(*held)),
                party=place.party,
                owner=place.ident,
                ends=any(callback_may_end(one, held) for one in called),
                undoes_through=partial(_instead, (*undone_through, *roots[len(held) :])),
                names_reached=no_names if begun else names_by_all(called, carried),
            )


def _without_running(carried: tuple[Any, ...], place: Place) -> tuple[Any, ...]:
    """What a thread was started with; instead of a function that it is running, whose frame is read, what this carries."""
    running = {frame.f_code for frame in place.frames if is_application(frame.f_code)}
    found: list[Any] = []
    todo = list(carried)
    while todo:
        one = todo.pop()
        function = one.__func__ if type(one) is MethodType else one
        if type(function) is FunctionType and function.__code__ in running:
            todo += [each for each in compat.bound_to(one) if each is not function]
        else:
            found.append(one)
    return tuple(found)


def _instead(roots: tuple[Any, ...], _: frozenset[str]) -> tuple[Any, ...]:
    return roots


def _caller_in_library(frame: FrameType, name: str, **of_actor: Any) -> Iterator[Actor]:
    """A library's frame that may call what it was given: the exit of a block, a log handler, a scheduler's job, a method."""
    if frame.f_globals.get("__name__", "").partition(".")[0] in _CALLING_NOTHING:
        return
    held = tuple(one for variable, one in variables_of(frame).items() if variable != "func")  # a decorated function runs now
    called = list(dict.fromkeys(each for one in held for each in functions_behind(one)))
    if called:
        yield of_callbacks(f"{name}, which may call {compat.name_of(called[0])}", called, held, **of_actor)


def _of_globals(text: str, frame: FrameType, **of_actor: Any) -> Actor:
    """An actor that uses globals in this frame; ``of_actor``: its other fields."""
    return Actor(text=text, roots=globals_of(frame), ends=True, borrowed=True, led_by=partial(own_reached, frame), **of_actor)


def _of_calls(text: str, frame: FrameType, **of_actor: Any) -> Actor:
    """An actor that calls what the globals lead to that this frame's code uses; ``of_actor``: its other fields."""
    roots = names_ahead(frame, False).global_values
    return Actor(text=text, roots=roots, only_calls=True, led_by=partial(own_reached, frame), **of_actor)


def _dropping(dropped: Sequence[Any], who: str, **of_actor: Any) -> Iterator[Actor]:
    """The end of a thread or task that calls these finalizers; ``of_actor``: its other fields."""
    if dropped:
        yield of_callbacks(f"the end of {who}, which drops an object", dropped, **of_actor)


def _called_in(frame: FrameType, place: Place, name: str) -> Iterator[Actor]:
    """What a thread's frame calls besides its own code: a channel's callbacks, what a console is given."""
    yield from _connectivity_callbacks(frame)
    typed = named_in_consoles(variables_of(frame).values())
    if typed:
        text = f"thread {name}, which runs what it reads"
        yield Actor(text=text, roots=typed, party=place.party, owner=place.ident, ends=True)


def _connectivity_callbacks(frame: FrameType) -> Iterator[Actor]:
    for callback in compat.connectivity_callbacks(frame):
        yield of_callbacks(f"{compat.name_of(callback)}, a connectivity callback of a channel", [callback], owner=callback)


def library_threads(places: Iterable[Place]) -> Iterator[Actor]:
    """Threads in library code that may call what they hold, such as a pool's result thread."""
    known = compat.threads()
    for place in places:
        thread = known.get(place.ident)
        roots = tuple(
            held
            for frame in place.frames
            if is_library(frame.f_code) and not compat.is_loop_code(frame.f_code)
            for held in variables_of(frame).values()
            if held is not thread or type(thread) is not threading.Thread
        )
        if type(thread) is threading.Thread:  # all it will call is what it was started with
            roots += _without_running(compat.thread_arguments(thread), place)
        if roots:
            yield Actor(text=f"thread {place.ident}, which may call it", roots=roots, party=place.party, owner=place.ident)


def of_callbacks(text: str, callbacks: Sequence[Any], arguments: tuple[Any, ...] = (), **of_actor: Any) -> Actor:
    """An actor that calls ``callbacks`` with ``arguments``; ``of_actor``: its other fields."""
    roots = callback_roots(*callbacks, *arguments)
    ends = any(callback_may_end(one, arguments) for one in callbacks)
    return Actor(
        text=text,
        roots=roots,
        ends=ends,
        names_reached=names_by_all(callbacks, arguments),
        led_by=partial(own_reached_by_all, callbacks, arguments),
        **of_actor,
    )
