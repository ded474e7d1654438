"""Parties that wait for what a task or an executor's item would have brought, had it not failed: mostly nothing logs the error.

Rules:

1. A task has failed if it has ended with an exception, and so has an item that an executor has run. The traceback still shows
   where, and what its functions had.
2. It would have ended the wait if one of these functions had the awaited object (an event, a condition, a queue, a future), or
   an object with it as an attribute, and mentions what ends such a wait (``set``, ``notify``, ``put``, ``set_result``).
3. Only failed tasks and items that the waiting party has are found: in a variable, a collection, or an attribute of these.
4. Others may end the wait as well. So this explains a wait to people, and proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.methods import is_program_class
from stilltrue.runtime.look.code.attributes import attributes_of
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in
from stilltrue.runtime.waits.reachability.loops.waking import names_ending
from stilltrue.runtime.waits.wait import CallStack

_COLLECTIONS = (list, tuple, set, frozenset, dict)
_THINGS_MAX = 1_000
_DEPTH_MAX = 100


def failed_before(stack: CallStack) -> str:
    """The failed task or item that was to end the wait of the party with this stack, for people; empty if none is known."""
    awaited, ending = _awaited_by(stack)
    if not ending:
        return ""
    for who, error in _failed(_had_by(stack)):
        if any(_would_end(frame, awaited, ending) for frame, _ in _frames_of(error)):
            return f"{who} was to end: it failed with {type(error).__name__} at {_place_of(error)}"
    return ""


def _awaited_by(stack: CallStack) -> tuple[tuple[Any, ...], frozenset[str]]:
    """What the party waits for, and the names of the operations that end the wait; no names if unknown."""
    if stack.task is None:
        found = awaited_in(stack.ident, stack.frames)
        return ((), frozenset()) if found is None else ((found.thing,), found.waking)
    things = (variables_of(one).get("self") for one in stack.frames[:1] if not is_application(one.f_code))
    return (stack.future, *things), frozenset() if stack.future is None else names_ending(stack.task)


def _had_by(stack: CallStack) -> Iterator[Any]:
    for frame in stack.frames:
        if is_application(frame.f_code):
            yield from variables_of(frame).values()


def _failed(things: Iterable[Any]) -> Iterator[tuple[str, BaseException]]:
    """Rule 3: the name of each, and its exception, which ``exception()`` of a task would keep asyncio from reporting."""
    near = list(islice(things, _THINGS_MAX))
    near += islice((each for one in near for each in _items_of(one)), _THINGS_MAX)
    within = (each for one in near if is_program_class(type(one)) for each in attributes_of(one))
    near += islice((each for one in within for each in (one, *_items_of(one))), _THINGS_MAX)
    for one in {id(one): one for one in near}.values():
        is_task = compat.is_task(one)
        error = getattr(one, "_exception", None) if is_task or type(one) is Future else None
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            yield f"task {one.get_name()}" if is_task else "an executor's item", error


def _items_of(thing: Any) -> Iterator[Any]:
    if type(thing) not in _COLLECTIONS:
        return iter(())
    return islice(iter(list(thing.values() if type(thing) is dict else thing)), _THINGS_MAX)


def _frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The application's frames in a traceback, outermost first, each with its line."""
    trace = error.__traceback__
    for _ in range(_DEPTH_MAX):
        if trace is None:
            break
        if is_application(trace.tb_frame.f_code):
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _would_end(frame: FrameType, awaited: tuple[Any, ...], ending: frozenset[str]) -> bool:
    """Rule 2."""
    if ending.isdisjoint(names_in(frame.f_code)):
        return False
    had = list(variables_of(frame).values())
    had += [each for one in had for each in attributes_of(one)]
    return any(one is each for one in had for each in awaited)


def _place_of(error: BaseException) -> str:
    """Where the innermost function of the application failed."""
    found = [f"{frame.f_code.co_filename}:{line} in {qualname_of(frame.f_code)}" for frame, line in _frames_of(error)]
    return found[-1] if found else "an unknown place"
