"""To whom of an event loop a request to come may hand an object: the tasks, callbacks and protocols that may end its wait.

Rules:

1. A task counts if the rest of its coroutines' code mentions what ends the wait, or a function does that its end calls, or the
   end of what it awaits. A task's step, and asyncio's and gRPC's own callbacks, end only waits of their own. A callback,
   timer, reader or signal handler of the loop counts if its function mentions it, or one that it carries (the factory of a
   listening socket's protocols); the loop's thread runs them.
2. So does a protocol of a connection, of which asyncio's own are none: what they call for a new connection is a task.
3. Nothing is known of a task that is about to run, nor of one whose loop does not run, if it counts by rule 1. Nor of any other
   suspended coroutine or asynchronous generator of the application whose code mentions it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application, is_ours
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.waits.reachability.loops.loop_contents import LoopContents, is_running
from stilltrue.runtime.waits.reachability.names.mentions import may_end_ahead

_CARRIED_DEPTH_MAX = 4
_Frames = Mapping[int, Sequence[FrameType]]
MayEnd = Callable[[Any], bool]
"""Whether a function, or code that it calls, mentions what ends the wait."""


def loops_of(running: _Frames) -> dict[int, asyncio.AbstractEventLoop]:
    """The event loops that run, by thread."""
    every = ((ident, compat.loop_in(one)) for ident, frames in running.items() for one in frames)
    return {ident: loop for ident, loop in every if loop is not None}


def servers_on(loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[Any]:
    """The servers on these loops, as gRPC keeps them."""
    tasks = (task for loop in loops for task in compat.tasks_of(loop) or () if compat.is_grpc_task(task))
    yield from {id(server): server for task in tasks if (server := compat.aio_server_of(task)) is not None}.values()


def handed_to(
    loops: Mapping[int, asyncio.AbstractEventLoop], contents: LoopContents, waking: frozenset[str], may_end: MayEnd
) -> set[int | Task] | None:
    """The tasks that count, and the threads of loops with anything else that does (rules 1 and 2); None if unknown (rule 3)."""
    found: set[int | Task] = set()
    every = compat.tasks_of_all_loops()
    if any(loop.is_running() and loop not in loops.values() for loop in {task.get_loop() for task in every}):
        return None  # the frames of its thread could not be read
    for ident, loop in loops.items():
        handles, factories = compat.handles_of(loop), compat.factories_of(loop)
        if handles is None or factories is None or compat.tasks_of(loop) is None:
            return None
        handles += [*compat.watched_by(loop), *compat.signal_handlers_of(loop).values()]
        calls = any(_may_run(one, may_end) for one in handles) or any(_calls(one, may_end) for one in factories)
        if calls or any(_receives(one, may_end) for one in compat.protocols_of(loop)):
            found.add(ident)
    for task in every:
        if any(may_end_ahead(frame, waking) for frame in _frames_of(task)) or _calls_at_end(task, may_end):
            if id(task) not in contents.scheduled:
                return None
            found.add(contents.reacher(id(task)))
    return found


def others_mention(paused: Iterable[Any], running: _Frames, waking: frozenset[str]) -> bool:
    """Whether a suspended coroutine or generator that no task awaits mentions what ends the wait (rule 3)."""
    known = {id(one) for frames in running.values() for one in frames}
    known.update(id(frame) for task in compat.tasks_of_all_loops() for frame in _frames_of(task))
    for one in paused:
        frame, code = frame_of(one), compat.code_of(one)
        if frame is None or code is None or id(frame) in known or is_running(one):
            continue
        if is_application(code) and may_end_ahead(frame, waking):
            return True
    return False


def _frames_of(task: Task) -> list[FrameType]:
    return [frame for one in compat.await_chain(task.get_coro()) if (frame := frame_of(one)) is not None]


def _calls_at_end(task: Task, may_end: MayEnd) -> bool:
    """Whether a callback counts that runs at the end of a task or of what it awaits."""
    awaited = (task, blocking_future(task))
    return any(_calls(callback, may_end) for one in awaited if one is not None for callback, _ in compat.callbacks_of(one))


def _may_run(handle: asyncio.Handle, may_end: MayEnd) -> bool:
    callback, arguments = compat.callback_of(handle)
    return not compat.belongs_to_task(callback) and any(_calls(one, may_end) for one in (callback, *arguments))


def _calls(thing: Any, may_end: MayEnd, depth: int = 0) -> bool:
    """Whether a callback or what it was given is a function or class that counts, or carries one."""
    kind = type(thing)
    if issubclass(kind, type):
        return _receives(thing, may_end)
    if kind is list:  # of callbacks, as gRPC keeps them
        return any(_calls(one, may_end, _CARRIED_DEPTH_MAX) for one in list(thing))
    carried = compat.bound_to(thing) if kind is not partial else (thing.func, *thing.args, *thing.keywords.values())
    if kind in (FunctionType, MethodType):
        code, _, _ = compat.code_behind(thing)
        if code is not None and not (compat.is_loop_code(code) or compat.is_grpc(code.co_filename) or is_ours(code)):
            return may_end(thing)
    elif kind is not partial and kind not in compat.COMPILED_FUNCTIONS:
        method = next((one.__dict__["__call__"] for one in kind.__mro__ if "__call__" in one.__dict__), None)
        return type(method) is FunctionType and not compat.is_loop_code(method.__code__) and may_end(thing)
    return depth < _CARRIED_DEPTH_MAX and any(_calls(one, may_end, depth + 1) for one in carried if one is not thing)


def _receives(protocol: Any, may_end: MayEnd) -> bool:
    """Whether a method of a protocol, or of a class of protocols, counts."""
    kind = protocol if issubclass(type(protocol), type) else type(protocol)
    methods = (one for base in type.__getattribute__(kind, "__mro__") for one in list(base.__dict__.values()))
    every = (one for one in methods if type(one) is FunctionType and not compat.is_loop_code(one.__code__))
    return any(may_end(one if kind is protocol else MethodType(one, protocol)) for one in every)
