"""Decides whether a thread or task is about to wake another: the rest of its code mentions what ends the other's wait.

A cycle of tasks each of which would set the event, notify the condition or complete the future that the next one awaits is a
deadlock. Idle workers at a queue that is never fed are not, though they too can reach what they wait for. Nor are watchers of a
stop that is never asked for, each of which would tell the next: who mentions what ends a wait only for other objects, which its
own code names, is not about to end this one.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import CodeType, FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.look.called_code import call_graph
from stilltrue.runtime.look.called_code import reachable_names as reachable_code_names
from stilltrue.runtime.look.called_code.reachable_names import reachable_names
from stilltrue.runtime.look.code.instructions_ahead import ahead_of, reached_from
from stilltrue.runtime.look.code.names import ATTRIBUTES, words_in
from stilltrue.runtime.parties import runs_loop
from stilltrue.runtime.waits.ending_operations import (
    ACKNOWLEDGING,
    COMPLETING,
    COMPLETING_OR_CANCELLING,
    NOTIFYING,
    PUTTING,
    SETTING,
    SHUTTING,
    TAKING,
)
from stilltrue.runtime.waits.holders.with_blocks import expression_before, instructions_of, value_of
from stilltrue.runtime.waits.reachability.registered_answers import is_registered, uses_item
from stilltrue.runtime.waits.resolvers.event_loops.anyio_waits import sends_item
from stilltrue.runtime.waits.resolvers.polling_loops import is_interrupted
from stilltrue.runtime.waits.wait import Task

_WAKING: dict[CodeType, frozenset[str]] = {
    asyncio.Event.wait.__code__: SETTING,
    asyncio.Condition.wait.__code__: NOTIFYING,
}
_KINDS = (
    *(asyncio.Condition, asyncio.Event, asyncio.Future, asyncio.Queue),
    *(queue.Queue, queue.SimpleQueue, threading.Condition, threading.Event, Future),
)
_DEPENDS_ON_OTHERS = frozenset(id(one.__code__) for one in (asyncio.Queue.put, asyncio.Queue.join, *compat.BARRIER_WAITS))
"""By identity: to hash a code reads all of it."""
_CALLERS_MAX = 5
"""Number of innermost functions that may have registered what a task awaits."""
WITH_ITS_WAITER = "is cancelled with its waiter"
"""Among the names of what ends a wait: so may any task that awaits the same future. No identifier contains a space."""
_ENDING: dict[CodeType, frozenset[str]] = {
    **_WAKING,
    asyncio.Queue.get.__code__: PUTTING | SHUTTING,
    asyncio.Queue.put.__code__: TAKING | SHUTTING,
    asyncio.Queue.join.__code__: ACKNOWLEDGING | SHUTTING,
}


def is_to_wake(task: Task, waiting: Task) -> bool:
    """Whether the rest of ``task``'s code mentions what wakes ``waiting`` from an event, a condition or a plain future."""
    waking, thing = _waking(waiting)
    return bool(waking) and any(may_wake(frame, waking, thing) for frame in _frames_of(task))


def may_end(task: Task, waiting: Task) -> bool:
    """Whether the rest of ``task``'s code mentions what ends the wait of ``waiting``, or that is not known."""
    ending = names_ending(waiting)
    return not ending or any(not ending.isdisjoint(mentioned_ahead(frame)) for frame in _frames_of(task))


def may_wake(frame: FrameType, waking: frozenset[str], thing: object) -> bool:
    """Whether the rest of a frame's code mentions an operation of ``waking`` for ``thing``, or for what is not known."""
    found = woken_ahead(frame, waking)
    return found is None or id(thing) in found


def woken_ahead(frame: FrameType, waking: frozenset[str]) -> frozenset[int] | None:
    """The objects, by identity, for which the rest of a frame's code mentions an operation of ``waking``; None if not known."""
    if waking.isdisjoint(mentioned_ahead(frame)):
        return frozenset()
    code, values = frame.f_code, variables_of(frame)
    ahead = ahead_of(code, frame.f_lasti)
    if not ahead.known or any(type(one) is CodeType and not waking.isdisjoint(words_in(one)) for one in code.co_consts):
        return None
    every = instructions_of(code)
    named = [at for at in reached_from(code, frame.f_lasti) if every[at].opname in ATTRIBUTES and every[at].argval in waking]
    things = [value_of(expression_before(every, at), values, frame.f_globals) for at in named]
    if not things or any(type(one) not in _KINDS for one in things):
        return None
    elsewhere = reachable_names(code, frame.f_globals, values.values(), (ahead.names | ahead.stored) - waking, far=False)
    return frozenset(map(id, things)) if waking.isdisjoint(elsewhere.names) else None


def names_ending(task: Task) -> frozenset[str]:
    """The names of all operations that end a task's wait but to cancel the task; empty if unknown."""
    innermost = next(_frames_of(task), None)
    if innermost is None:
        return frozenset()
    if is_application(innermost.f_code):
        return COMPLETING_OR_CANCELLING | {WITH_ITS_WAITER}
    return _ENDING.get(innermost.f_code, frozenset())


def awaits_grpc(task: Task) -> bool:
    """Whether what a task awaits is known to gRPC's core, which nobody can account for."""
    chain = compat.await_chain(task.get_coro())
    code = compat.code_of(chain[-1]) if chain else None
    return code is None or compat.is_grpc(code.co_filename)


def depends_on_others(task: Task) -> bool:
    """Whether ``task`` is at a full queue or stream, or a barrier, or waits for the items of a queue to be done."""
    return any(id(frame.f_code) in _DEPENDS_ON_OTHERS or sends_item(frame.f_code) for frame in _frames_of(task))


def takes_item(task: Task) -> bool:
    """Whether ``task`` waits for an item of a queue of asyncio's."""
    innermost = next(_frames_of(task), None)
    return innermost is not None and innermost.f_code is asyncio.Queue.get.__code__


def is_notified(task: Task) -> bool:
    """Whether ``task`` waits at a condition of asyncio's."""
    innermost = next(_frames_of(task), None)
    return innermost is not None and innermost.f_code is asyncio.Condition.wait.__code__


def completes_its_own(task: Task) -> bool:
    """Whether a task awaits a future and is about to complete futures itself: it reads answers, and waits for one."""
    frames = list(_frames_of(task))
    if not frames or not is_application(frames[0].f_code):
        return False
    return any(is_application(one.f_code) and not COMPLETING.isdisjoint(_named_ahead(one)) for one in frames[1:])


def never_parks(task: Task) -> bool:
    """Whether ``task`` depends on others, even if these have ended or forgotten it."""
    return depends_on_others(task) or completes_its_own(task) or awaits_answer(task) or is_last_consumer(task)


def awaits_answer(task: Task) -> bool:
    """Whether ``task`` has registered what it awaits, for others to find."""
    frames = list(_frames_of(task))
    if not frames:
        return False
    is_own = is_application(frames[0].f_code)
    awaited = blocking_future(task) if is_own else variables_of(frames[0]).get("self")
    return is_registered(awaited, frames[:_CALLERS_MAX])


def is_last_consumer(task: Task) -> bool:
    """Whether ``task`` waits for an item, and the program, which would go on after it, for its end: a loop's main task.

    Not in a daemon's loop, nor if it is to wait until Ctrl-C, or for good.
    """
    if not (takes_item(task) and runs_loop(task) and uses_item(_frames_of(task))) or is_interrupted(_frames_of(task)):
        return False
    loop = task.get_loop()
    running = (ident for ident, frames in frames_of_threads().items() if any(compat.loop_in(one) is loop for one in frames))
    threads = compat.threads()
    return any(ident in threads and not threads[ident].daemon for ident in running)


def _named_ahead(frame: FrameType) -> frozenset[str]:
    """The names in the rest of a frame's own code; none if that is not understood."""
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    return ahead.names if ahead.known else frozenset()


def forget_objects() -> None:
    """Clear the caches of :func:`mentioned_ahead`: application objects in them would count as references, and live on."""
    reachable_code_names.clear_caches()
    call_graph.clear_caches()


def _waking(waiting: Task) -> tuple[frozenset[str], object]:
    """The names of methods that end a task's wait, none if unknown; and what they end it for."""
    innermost = next(_frames_of(waiting), None)
    if innermost is None:
        return frozenset(), None
    if is_application(innermost.f_code):
        return COMPLETING, blocking_future(waiting)
    return _WAKING.get(innermost.f_code, frozenset()), variables_of(innermost).get("self")


def mentioned_ahead(frame: FrameType) -> frozenset[str]:
    """The names that the rest of a frame's code reaches; none for code that is not the application's."""
    if not is_application(frame.f_code):
        return frozenset()
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    begin = ahead.names | ahead.stored if ahead.known else None
    return reachable_names(frame.f_code, frame.f_globals, variables_of(frame).values(), begin, far=False).names


def _frames_of(task: Task) -> Iterator[FrameType]:
    """The frames of a suspended task, innermost first."""
    found = [frame for one in compat.await_chain(task.get_coro()) if (frame := frame_of(one)) is not None]
    return reversed(found)
