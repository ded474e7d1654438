"""Finds the uvloop loop that a thread runs. uvloop is compiled, so the innermost Python frame is its caller.

Rules:

1. A frame runs a loop if it is in a call of ``run_forever`` or ``run_until_complete`` on a running loop.
2. That method may itself be the target of a thread or an executor item; then only the thread's or the item's frame exists.
3. If the code does not name the object (``get_event_loop().run_forever()``), the loop is the only running one among the loops
   of all tasks, if there is exactly one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import functools
import sys
import threading
from asyncio import tasks
from collections.abc import Iterable
from types import CodeType, FrameType, MethodType
from typing import Any

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.compat.loops.uvloops import is_uvloop
from stilltrue.runtime.introspection.frames import variables_of

_RUNNING = frozenset({"run_forever", "run_until_complete"})
_CODES_MAX = 2_000
_VARIABLES = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF")
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_BETWEEN = frozenset({"PUSH_NULL", "NOP", "CACHE", "EXTENDED_ARG"})
_THREAD: CodeType = threading.Thread.run.__code__
_ITEM: CodeType = concurrent.futures.thread._WorkItem.run.__code__  # noqa: SLF001 - no public access
_UNKNOWN = object()
_UNTIL = "run_until_complete.<locals>.done_cb"


def uvloop_in(frame: FrameType) -> asyncio.AbstractEventLoop | None:
    """The uvloop loop that this frame runs, or None."""
    if "uvloop.loop" not in sys.modules:
        return None
    code = frame.f_code
    if code is _THREAD or code is _ITEM:  # rule 2
        own = getattr(variables_of(frame).get("self"), "__dict__", {}) if code is _THREAD else _slots(frame)
        return _first(one.__self__ for one in _methods((own.get("_target"), own.get("fn"), *(own.get("args") or ()))))
    if _RUNNING.isdisjoint(code.co_names):
        return None
    receiver = _receiver(code, frame.f_lasti)
    if receiver is None:
        return None
    found = _value(receiver, frame)
    return _only_one() if found is _UNKNOWN else _first([found])


def is_uvloop_main_task(task: Any) -> bool:
    """Whether a uvloop loop runs until this task has ended."""
    called = (entry[0] for entry in getattr(task, "_callbacks", None) or ())
    return any(module_of(type(one)).startswith("_cython") and str(one.__qualname__).endswith(_UNTIL) for one in called)


def _first(loops: Iterable[Any]) -> asyncio.AbstractEventLoop | None:
    """The first running uvloop loop among ``loops``."""
    return next((one for one in loops if is_uvloop(one) and one.is_running()), None)


def _slots(frame: FrameType) -> dict[str, Any]:
    item = variables_of(frame).get("self")
    return {name: getattr(item, name, None) for name in ("fn", "args")}


def _methods(called: Iterable[Any]) -> list[MethodType]:
    """The loop-running methods among the called objects and the arguments of partials."""
    found = []
    for one in called:
        inner = (one.func, *one.args) if type(one) is functools.partial else (one,)
        found += [each for each in inner if type(each) is MethodType and each.__name__ in _RUNNING]
    return found


@functools.lru_cache(maxsize=_CODES_MAX)
def _receiver(code: CodeType, at: int) -> tuple[str, ...] | None:
    """The names by which code refers to the loop it runs at an instruction; empty if unknown, None if it runs none."""
    every = [one for one in instructions(code) if one.offset <= at]
    chain: list[str] = []
    begin = None
    found: dict[Any, tuple[str, ...]] = {}
    for one in every:
        if one.opname.startswith(_VARIABLES):
            chain, begin = [str(one.argval)], _begin(one)
        elif one.opname in _ATTRIBUTES:
            if str(one.argval) in _RUNNING:
                found[_begin(one)] = tuple(chain) if begin == _begin(one) else ()
            chain = [*chain, str(one.argval)] if begin == _begin(one) else []
        elif one.opname not in _BETWEEN:
            chain = []
    return found.get(_begin(every[-1])) if every and every[-1].opname.startswith(("CALL", "PRECALL")) else None


def _begin(one: Any) -> tuple[int | None, int | None]:
    """The start of the expression that an instruction completes; a call starts where its callee does."""
    place = getattr(one, "positions", None)
    return (None, None) if place is None else (place.lineno, place.col_offset)


def _value(receiver: tuple[str, ...], frame: FrameType) -> Any:
    """The object that these names refer to in a frame, read without running code."""
    if not receiver:
        return _UNKNOWN
    names = variables_of(frame)
    value = names.get(receiver[0], frame.f_globals.get(receiver[0], _UNKNOWN))
    for name in receiver[1:]:
        try:
            value = object.__getattribute__(value, "__dict__").get(name, _UNKNOWN)
        except AttributeError:
            return _UNKNOWN
    return value


def _only_one() -> asyncio.AbstractEventLoop | None:
    """Rule 3."""
    every = [one for name in ("_all_tasks", "_scheduled_tasks") for one in list(getattr(tasks, name, ()))]
    loops = {loop for task in every if is_uvloop(loop := task.get_loop()) and loop.is_running()}
    return loops.pop() if len(loops) == 1 else None
