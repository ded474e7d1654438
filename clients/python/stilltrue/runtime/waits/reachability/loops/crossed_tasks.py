"""Tasks that wait for each other although no other party depends on them: each is about to do what the next one waits for.

Rules:

1. Such a task waits for an event, a condition, an item of a queue or a future, and not in a loop as an idle worker does
   (:mod:`~stilltrue.runtime.waits.reachability.idle_loops`).
2. The rest of its own code, or of a method that this calls, names an operation that ends the wait of another such task, on the
   very object for which that one waits, but not on the one for which it waits itself: who passes a stop on wakes nobody.
3. These tasks form a cycle, or stand between two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.instructions_ahead import reached_from
from stilltrue.runtime.look.code.names import ATTRIBUTES, pending_at
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.call_stack import stack_of_task
from stilltrue.runtime.waits.ending_operations import COMPLETING, NOTIFYING, PUTTING, SETTING
from stilltrue.runtime.waits.holders.delegates import CALLS, Call, call_at, called_by, variables_given
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.reachability.idle_loops import is_idle
from stilltrue.runtime.waits.wait import CallStack, Task

_ENDING: dict[int, frozenset[str]] = {
    id(asyncio.Event.wait.__code__): SETTING,
    id(asyncio.Condition.wait.__code__): NOTIFYING,
    id(asyncio.Queue.get.__code__): PUTTING,
}
"""By identity: to hash a code reads all of it."""
_OPERATIONS = SETTING | NOTIFYING | PUTTING | COMPLETING
_DEEP_MAX = 2
TASKS_MAX = 1_000
"""Number of tasks of one loop that are read."""
SHARE_OF_TIME = 0.01
"""Largest share of the time to spend on the search."""
_Named = tuple[tuple[tuple[str, Expression], ...], tuple[Call, ...]]
"""The operations that a code names, each with its object, and the methods that it calls."""


class CrossedTasks:
    """Those of a process's running loops, found again and again within a share of the time."""

    def __init__(self) -> None:
        self._found: tuple[OwnRef, ...] = ()
        self._not_before = 0.0

    def search(self) -> None:
        """Find them, if it is time to."""
        if time.monotonic() >= self._not_before:
            begun = time.thread_time()
            loops = {loop for frames in frames_of_threads().values() for _, loop in compat.loops_in(frames)}
            tasks = (task for loop in loops for task in compat.first_tasks_of(loop, TASKS_MAX))
            self._found = tuple(map(OwnRef, crossed(map(stack_of_task, tasks))))
            self._not_before = time.monotonic() + (time.thread_time() - begun) / SHARE_OF_TIME

    def tasks(self) -> set[Task]:
        """Those that were found last."""
        return {task for one in self._found if (task := one()) is not None}


def crossed(stacks: Iterable[CallStack]) -> frozenset[Task]:
    """The tasks with these stacks that wait for each other."""
    waiting = [(task, stack, *awaited) for stack in stacks if (task := stack.task) and (awaited := _awaited(stack))]
    by_thing: dict[int, list[tuple[Task, frozenset[str]]]] = {}
    for task, _, thing, names in waiting:
        by_thing.setdefault(id(thing), []).append((task, names))
    wakes = {}
    for task, stack, thing, _ in waiting:
        named = {(name, id(one)) for name, one in _named_by(stack) if one is not thing}
        wakes[task] = {other for name, one in named for other, names in by_thing.get(one, ()) if name in names}
    while gone := {one for one in wakes if not wakes[one]} | (wakes.keys() - set().union(*wakes.values())):
        wakes = {one: woken - gone for one, woken in wakes.items() if one not in gone}
    return frozenset(wakes)


def _awaited(stack: CallStack) -> tuple[Any, frozenset[str]] | None:
    """What a task waits for (rule 1), and the operations that end the wait; None if it does not wait so."""
    if not stack.frames or stack.future is None or is_idle(stack.frames):
        return None
    innermost = stack.frames[0]
    names = _ENDING.get(id(innermost.f_code))
    if names is not None:
        thing = variables_of(innermost).get("self")
        return None if thing is None else (thing, names)
    is_own = type(stack.future) is asyncio.Future and is_application(innermost.f_code)
    return (stack.future, COMPLETING) if is_own else None


def _named_by(stack: CallStack) -> Iterator[tuple[str, Any]]:
    """The operations that the rest of a task's code names, each with its object."""
    for frame in stack.frames:
        code = frame.f_code
        if is_application(code) and any(named := _named_ahead(code, frame.f_lasti)):
            yield from _values(named, variables_of(frame), frame.f_globals, _DEEP_MAX)


def _values(named: _Named, names: Mapping[str, Any], others: Mapping[str, Any], deep: int) -> Iterator[tuple[str, Any]]:
    for name, expression in named[0]:
        yield name, value_of(expression, names, others)
    for call in named[1] if deep else ():
        receiver = value_of(call.receiver, names, others)
        function, given = (None, ()) if receiver is UNKNOWN else called_by(call, receiver, names, others)
        if function is not None:
            own = variables_given(function, [*given, *(value_of(one, names, others) for one in call.arguments)])
            if own is not None:
                yield from _values(_named_ahead(function.__code__, -1), own, function.__globals__, deep - 1)


@cached_by_code
def _named_ahead(code: CodeType, at: int) -> _Named:
    """What a code names from an offset on; from its beginning if that is negative."""
    every = instructions_of(code)
    try:
        here = max((index for index, one in enumerate(every) if one.offset <= at), default=0)
        ahead = sorted({*reached_from(code, at), *pending_at(every, here)} if at >= 0 else range(len(every)))
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return (), ()
    named = [index for index in ahead if every[index].opname in ATTRIBUTES and every[index].argval in _OPERATIONS]
    operations = [(str(every[index].argval), expression_before(every, index)) for index in named]
    calls = [call for index in ahead if every[index].opname in CALLS and (call := call_at(every, index))]
    return tuple(operations), tuple(one for one in calls if one.receiver and one.name not in _OPERATIONS)
