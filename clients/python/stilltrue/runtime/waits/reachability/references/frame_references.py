"""The references from the frames of threads: rules 1 and 3 of
:mod:`~stilltrue.runtime.waits.reachability.references.thread_reach`.
"""

from __future__ import annotations

import inspect
import queue
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.bytecode.stack_heights import arguments_of, has_options, kept_in_call, leaves_block
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import feeds_requests, is_application
from stilltrue.runtime.waits.holders.with_blocks import exits_of
from stilltrue.runtime.waits.pipes.queue_feeders import is_idle_feeder
from stilltrue.runtime.waits.reachability.names.code_names import LOCALS, names_ahead
from stilltrue.runtime.waits.reachability.references.leading_objects import LeadingObjects

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALLING = frozenset({"CALL", "PRECALL"})
_NEXT_WITH = 3
"""Number of stack slots kept in ``next(requests)``, which is all that those who feed a request stream call while they wait."""
_LEFT_WITH = 4
"""Likewise in a call of a block's exit: that, and its arguments."""
_KEEPS_EXIT = sys.version_info >= (3, 12)
"""Whether only the interpreter has the exit of a block that a frame enters; an earlier version puts it on the stack first."""
_WAITS = frozenset({threading.__file__, queue.__file__})
_TIMERS = frozenset({threading.Timer.run.__code__})
_BARRIERS = (threading.Barrier.wait.__code__, threading.Barrier._wait.__code__)  # type: ignore[attr-defined]  # noqa: SLF001
_CALLS_PREDICATE = threading.Condition.wait_for.__code__


def read_frames(found: LeadingObjects, known: Counter[int], *, known_only: bool) -> None:
    """Count the references from threads' frames and, unless ``known_only``, record the threads that reach the objects."""
    for ident, frames in found.running.items():
        leads = not known_only and not is_idle_feeder(frames)
        for index, frame in enumerate(frames):
            for held, name in _held_by(frame, frames[index - 1] if index else None, found):
                known[held] += 1
                if leads and name is not None:
                    found.reachers.setdefault(held, set()).add(ident)


def _held_by(frame: FrameType, called: FrameType | None, found: LeadingObjects) -> Iterator[tuple[int, str | None]]:
    """The ``things`` to which a frame refers, once per reference, with the variable's name; None: it never reads it again.

    ``called``: the frame that it has called.
    """
    code = frame.f_code
    if code.co_flags & _SUSPENDED and id(frame) not in found.loops.hidden:  # its generator or coroutine is a referrer itself
        return
    slots = _slots_of_feeder(frame, called)
    compiled = called is None or compat.is_called_inline(called) is False
    kept = kept_in_call(code, frame.f_lasti, compiled=compiled) if slots is None else None
    read = compat.frame_references(frame, slots or kept or 0)
    if read is None:
        found.is_whole = False
        return
    if kept and compiled and called is not None:
        _correct(read[1], frame, called, kept, found)
    yield from ((one, None) for one in read[:1] if one in found.things)
    waits = code.co_filename in _WAITS and code not in _TIMERS and _is_librarys_own(frame) and not _may_break(frame)
    for name, held in read[1]:
        if held in found.things:
            is_called = name == "predicate" and code is _CALLS_PREDICATE and not _is_of_wait(found.things[held])
            leads_nowhere = (waits and not is_called) or held in found.loops.suspended
            dropped = name and not found.keeps_generators and not is_read_again(frame, name)
            yield held, None if leads_nowhere or dropped else name
    if kept is not None and compiled and called is not None:
        more = (*_copied_for(called, frame, kept), *_kept_while_made(read[1], frame, called, kept, found))
        yield from ((one, None) for one in more if one in found.things)
    yield from ((one, None) for one in (_kept_while_entered(frame, called, found) if called is not None else ()))
    exits = exits_of(frame) if kept is None and _has_methods(found) else []  # else they have been read with the stack
    yield from ((id(one), None if waits else "") for one in exits if one is not None and id(one) in found.things)


def _is_of_wait(function: Any) -> bool:
    """Whether it is a function of the standard library's own, such as the one by which a barrier waits."""
    return type(function) is FunctionType and function.__code__.co_filename in _WAITS


def _is_librarys_own(frame: FrameType) -> bool:
    """Whether a frame of ``threading`` or ``queue`` is not of a class that the application has derived from theirs."""
    return compat.module_of(type(variables_of(frame).get("self"))) in ("threading", "queue", "builtins", "NoneType")


def _may_break(frame: FrameType) -> bool:
    """Whether a frame waits at a barrier with a timeout."""
    return frame.f_code in _BARRIERS and variables_of(frame).get("timeout") is not None


def _correct(places: list[tuple[str, int]], frame: FrameType, called: FrameType, kept: int, found: LeadingObjects) -> None:
    """Correct what a frame's stack shows, in ``places``, where a call has put something else there, or has taken it away."""
    code, at = frame.f_code, frame.f_lasti
    if leaves_block(code, at):
        places[-_LEFT_WITH] = "", _exit_called(places[-_LEFT_WITH][1], called, found)
    elif opname_at(code, at) == "CALL_FUNCTION_EX":
        arguments = -2 if has_options(code, at) else -1
        if type(compat.stack_value_at(frame, at, kept + arguments)) is not tuple:  # a list, say, became one, and may be gone
            places[arguments] = "", 0


def _exit_called(held: int, called: FrameType, found: LeadingObjects) -> int:
    """The exit method of the block that is left, of which the stack shows only the object: a method has put that into its
    own place while it is called. ``held`` is what the stack shows.
    """
    if type(found.things.get(held)) is MethodType:
        return held
    methods = (one for one in found.things.values() if type(one) is MethodType and id(one.__self__) == held)
    return next((id(one) for one in methods if compat.code_behind(one)[0] is called.f_code), held)


def _copied_for(called: FrameType, frame: FrameType, kept: int) -> list[int]:
    """The arguments of ``function(*arguments, **options)`` in a frame that keeps so many values on its stack, by identity.

    The interpreter has copied them for the function, if there are any options.
    """
    at = frame.f_lasti
    if not has_options(frame.f_code, at):
        return []
    function, arguments, options = (compat.stack_value_at(frame, at, kept - depth) for depth in (3, 2, 1))
    is_of_function = type(function) in (FunctionType, MethodType) and compat.code_behind(function)[0] is called.f_code
    if not is_of_function or type(arguments) is not tuple or type(options) is not dict or not options:
        return []
    return [*map(id, arguments), *map(id, options.values())]


def _kept_while_entered(frame: FrameType, called: FrameType, found: LeadingObjects) -> Iterator[int]:
    """The methods, by identity, that the interpreter keeps while a frame enters a block by a method written in Python."""
    if not _has_methods(found) or opname_at(frame.f_code, frame.f_lasti) != "BEFORE_WITH":
        return
    entered = variables_of(called).get(next(iter(called.f_code.co_varnames), ""))
    methods = [one for one in found.things.values() if type(one) is MethodType and one.__self__ is entered]
    of_entering = [one for one in methods if compat.code_behind(one)[0] is called.f_code]
    of_leaving = [one for one in methods if one.__name__ == "__exit__"] if _KEEPS_EXIT else []
    for those in (of_entering, of_leaving):
        if len(those) == 1:  # of several, which one is not known
            yield id(those[0])


def _kept_while_made(
    places: list[tuple[str, int]], frame: FrameType, called: FrameType, kept: int, found: LeadingObjects
) -> list[int]:
    """The new object and the tuple of its arguments, by identity, while a class whose ``__init__`` runs makes the object.

    ``places``: what the frame's stack shows, ``kept`` values. Arguments by name are not known.
    """
    at = frame.f_lasti
    count = arguments_of(frame.f_code, at) if called.f_code.co_name == "__init__" else None
    if count is None or count + 2 > kept:
        return []
    if not any(issubclass(type(compat.stack_value_at(frame, at, kept - count - below)), type) for below in (1, 2)):
        return []
    given = [one for _, one in places[len(places) - count :]]
    tuples = [id(one) for one in found.things.values() if type(one) is tuple and given == [*map(id, one)]]
    made = variables_of(called).get(next(iter(called.f_code.co_varnames), ""))
    return [id(made), *tuples] if len(tuples) <= 1 else []


def _slots_of_feeder(frame: FrameType, called: FrameType | None) -> int | None:
    """The number of stack slots in which a frame that feeds a request stream keeps what it calls; None for any other."""
    asks = called is not None and feeds_requests(called.f_code)
    feeds = (asks and compat.is_feeding(frame)) or feeds_requests(frame.f_code)
    return _NEXT_WITH if feeds and opname_at(frame.f_code, frame.f_lasti) in _CALLING else None


def _has_methods(found: LeadingObjects) -> bool:
    return any(type(one) is MethodType for one in found.things.values())


def is_read_again(frame: FrameType, name: str) -> bool:
    """Whether a frame may still read one of its variables."""
    if not is_application(frame.f_code):
        return True
    return name in names_ahead(frame) or not LOCALS.isdisjoint(frame.f_code.co_names)
