"""The code ahead of a thread or task, frame by frame: reached at once, or beyond loops that end when a flag changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.called_code.methods import functions_of, methods_of
from stilltrue.runtime.look.code.conditions import Condition
from stilltrue.runtime.look.code.instructions_ahead import Ahead, ahead_of

_EXITS = frozenset({"exit", "quit"})
_MAIN_LOOPS = {("uvicorn/server.py", "main_loop"): Condition((("self", "should_exit"),))}
"""Server main loops that end when a flag changes, which only a method they call shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """The code ahead of ``frame`` once one condition of ``after`` has changed (each read in its frame); empty: at once."""

    frame: FrameType
    ahead: Ahead
    after: tuple[tuple[Condition, FrameType], ...] = ()


def stretches(frames: Iterable[FrameType]) -> Iterator[Stretch]:
    """The code ahead of each application frame (innermost first)."""
    at_once, raises = True, False
    after: tuple[tuple[Condition, FrameType], ...] = ()
    returns_then = raises_then = False
    for frame in frames:
        if not is_application(frame.f_code):
            continue
        flag = _main_loop(frame.f_code)
        if flag is not None:
            at_once, raises, after = False, False, ((flag, frame),)
            returns_then, raises_then = True, False
            continue
        code, at = frame.f_code, frame.f_lasti
        raising = _raising(code, frame.f_globals, variables_of(frame))
        now = ahead_of(code, at, returns_to=at_once, raises_to=raises, beyond=False, raising=raising)
        yield Stretch(frame, now)
        returned = now if at_once else ahead_of(code, at, returns_to=returns_then, beyond=False, raising=raising)
        after = (*after, *((condition, frame) for condition in returned.conditions))
        beyond = now
        if after:
            returns_to, raises_to = at_once or returns_then, raises or raises_then
            beyond = ahead_of(code, at, returns_to=returns_to, raises_to=raises_to, raising=raising)
            yield Stretch(frame, beyond, after)
        at_once, raises = now.returns, now.raises
        returns_then, raises_then = beyond.returns and not at_once, beyond.raises and not raises
        if not (returns_then or raises_then):
            after = ()


def callback_raises(callback: Any) -> bool:
    """Whether a callback is a function of the program's own that may raise an exception, or exit."""
    code, names, owner = compat.code_behind(callback)
    if code is None or not is_own_code(code):
        return False
    return not _EXITS.isdisjoint(code.co_names) or ahead_of(code, -1, raising=_raising(code, names, {"self": owner})).raises


def _raising(code: CodeType, others: Mapping[str, Any], names: Mapping[str, Any]) -> frozenset[str]:
    """The names in some code of the program's own functions that may raise an exception.

    ``others``: its globals; ``names``: its variables.
    """
    if not is_own_code(code):
        return frozenset()
    near = {name: one for space in (others, names) for name in code.co_names if (one := space.get(name)) is not None}
    near |= {name: one for name, one in names.items() if code.co_name != "<module>"}
    found = {name for name, one in near.items() if any(map(_raises, functions_of(one)))}
    methods = methods_of((type(names["self"]),)) if "self" in names else {}
    return frozenset(found.union(name for name in methods.keys() & set(code.co_names) if any(map(_raises, methods[name]))))


def _raises(function: FunctionType) -> bool:
    return is_own_code(function.__code__) and ahead_of(function.__code__, -1).raises


def returns(frames: Iterable[FrameType]) -> tuple[bool, tuple[tuple[Condition, FrameType], ...]]:
    """Whether all frames may return or raise at once; if not, the conditions after which they may."""
    last: dict[bool, Stretch] = {}
    outermost = None
    for one in stretches(frames):
        if outermost is not one.frame:
            last, outermost = {}, one.frame
        last[bool(one.after)] = one
    now, beyond = last.get(False), last.get(True)
    if now is None or now.ahead.returns or now.ahead.raises:
        return True, ()
    return False, beyond.after if beyond is not None and (beyond.ahead.returns or beyond.ahead.raises) else ()


def _main_loop(code: CodeType) -> Condition | None:
    name = code.co_filename.replace("\\", "/")
    return next(
        (flag for (file, function), flag in _MAIN_LOOPS.items() if name.endswith(file) and code.co_name == function), None
    )


def frames_of_task(task: Task) -> list[FrameType]:
    """The frames of a task, innermost first."""
    return _frames_of_coroutine(task.get_coro())


def own_frames_of(coroutine: Any) -> list[FrameType]:
    """The frames of the program's own code in a coroutine, innermost first."""
    return [frame for frame in _frames_of_coroutine(coroutine) if is_own_code(frame.f_code)]


def _frames_of_coroutine(coroutine: Any) -> list[FrameType]:
    return [frame for one in reversed(compat.await_chain(coroutine)) if (frame := frame_of(one)) is not None]
