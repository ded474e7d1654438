"""Whether an exception may escape the code of a thread or task, so that a failure hook is called.

Rules:

1. Each ``raise``, call and ``await`` still ahead may fail, unless a handler around it catches every ``Exception``.
2. Calls of a few names do not fail: sleeping, waiting, reading a clock, logging.
3. An exception that a caller catches does not escape. An outside interruption is not a failure.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import names_at, reached_from
from stilltrue.runtime.look.code.names import ATTRIBUTES, CALLING, VARIABLES

_HARMLESS = frozenset(
    {"sleep", "wait", "is_set", "set", "clear", "is_alive", "time", "monotonic", "perf_counter", "append", "len", "range"}
    | {"print", "debug", "info", "warning", "error", "exception", "critical"}
)
_AWAITS = frozenset({"GET_AWAITABLE", "GET_ANEXT"})
_EVERYTHING = frozenset({"Exception", "BaseException"})
_LOADS = frozenset({"BUILD_TUPLE", "NOP"})


def may_fail(frames: Iterable[FrameType]) -> bool:
    """Whether an exception may escape the application's ``frames`` (innermost first)."""
    inner = None
    for frame in frames:
        if is_application(frame.f_code):
            inner = _may_raise(frame.f_code, frame.f_lasti, inner)
    return bool(inner)


def may_write(frames: Iterable[FrameType]) -> bool:
    """Whether the application's ``frames`` may still call what rule 2 does not name, and so write to a pipe or a socket."""
    return any(_calls_more(frame.f_code, frame.f_lasti) for frame in frames if is_application(frame.f_code))


@cached_by_code
def _calls_more(code: CodeType, at: int) -> bool:
    try:
        every = list(instructions(code))
        calling = (one for index in reached_from(code, at) if (one := every[index]).opname in CALLING)
        return any(_called_at(every, one) not in _HARMLESS for one in calling)
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return True


def call_may_fail(code: CodeType) -> bool:
    """Whether an exception may escape a function that has not been called yet."""
    return _may_raise(code, -1, False)


@cached_by_code
def _may_raise(code: CodeType, at: int, inner: bool | None) -> bool:
    """Whether an exception may escape a function at ``at``; ``inner``: whether one may escape its callee, None if unknown."""
    try:
        every = list(instructions(code))
        flow = ControlFlow(code, every)
        here = flow.at(at)
        fails = _HARMLESS.isdisjoint(names_at(code, at)) if inner is None else inner
        if fails and not _is_caught(every, flow, here):
            return True
        return any(_may_fail_at(code, every, index) and not _is_caught(every, flow, index) for index in reached_from(code, at))
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return True


def _may_fail_at(code: CodeType, every: list[dis.Instruction], index: int) -> bool:
    one = every[index]
    if one.opname == "RAISE_VARARGS":
        return True
    if one.opname in _AWAITS:
        return _HARMLESS.isdisjoint(names_at(code, one.offset))
    return one.opname in CALLING and _called_at(every, one) not in _HARMLESS


def _called_at(every: list[dis.Instruction], call: dis.Instruction) -> str:
    """The last name of a call's callee; empty if there is none."""
    begin = _begin(call.positions)
    within = [one for one in every if one is not call and begin is not None and _begin(one.positions) == begin]
    if any(one.opname in CALLING and _end(one.positions) < _end(call.positions) for one in within):
        return ""  # ``f()()``
    names = [one for one in within if one.opname in ATTRIBUTES | VARIABLES and one.offset < call.offset]
    return str(max(names, key=lambda one: one.offset).argval) if names else ""


def _begin(place: Any) -> tuple[int, int] | None:
    return None if place is None or None in place else (place.lineno, place.col_offset)


def _end(place: Any) -> tuple[int, int]:
    return place.end_lineno, place.end_col_offset


def _is_caught(every: list[dis.Instruction], flow: ControlFlow, index: int) -> bool:
    return any(_catches_all(every, handler) for handler in flow.handlers(index))


def _catches_all(every: list[dis.Instruction], handler: int) -> bool:
    """Whether a handler begins with a bare ``except`` or one for every ``Exception``."""
    if every[handler].opname != "PUSH_EXC_INFO":
        return False
    if every[handler + 1].opname == "POP_TOP":
        return True
    for one in every[handler + 1 :]:
        if one.opname in VARIABLES | ATTRIBUTES:
            if one.argval in _EVERYTHING:
                return True
        elif one.opname not in _LOADS:
            return False
    return False
