"""The code ahead of a thread or task, frame by frame: reached at once, or beyond loops that end when a flag changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.conditions import Condition
from stilltrue.runtime.look.code.instructions_ahead import Ahead, ahead_of

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
    at_once = True
    after: tuple[tuple[Condition, FrameType], ...] = ()
    for frame in frames:
        if not is_application(frame.f_code):
            continue
        flag = _main_loop(frame.f_code)
        if flag is not None:
            at_once, after = False, ((flag, frame),)
            continue
        code, at = frame.f_code, frame.f_lasti
        now = ahead_of(code, at, returns_to=at_once, beyond=False)
        yield Stretch(frame, now)
        returned = now if at_once else ahead_of(code, at, returns_to=bool(after), beyond=False)
        after = (*after, *((condition, frame) for condition in returned.conditions))
        beyond = ahead_of(code, at, returns_to=at_once or bool(after)) if after else now
        if after:
            yield Stretch(frame, beyond, after)
        at_once = now.returns
        if at_once or not beyond.returns:
            after = ()


def returns(frames: Iterable[FrameType]) -> tuple[bool, tuple[tuple[Condition, FrameType], ...]]:
    """Whether all frames may return at once; if not, the conditions after which they may."""
    last: dict[bool, Stretch] = {}
    outermost = None
    for one in stretches(frames):
        if outermost is not one.frame:
            last, outermost = {}, one.frame
        last[bool(one.after)] = one
    now, beyond = last.get(False), last.get(True)
    if now is None or now.ahead.returns:
        return True, ()
    return False, beyond.after if beyond is not None and beyond.ahead.returns else ()


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
