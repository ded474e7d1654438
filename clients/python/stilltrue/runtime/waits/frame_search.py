"""Searches frames for the objects that they hold.

A frame holds its variables, the contents of their lists, tuples, sets and dictionaries, and the objects inside these. They are
searched nearest first, up to a bound.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_ours
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.ways_out.reach import NEAR_MAX, SKIPPED_CLASSES, is_open, named_by
from stilltrue.runtime.own_packages import is_installed_library

_NEAR_MIN, _NEAR_FOR_EACH = 100, 20
_OF_OTHERS = 40


def objects_held(frames: Sequence[FrameType], wanted: Callable[[Any], bool], budget: Budget, far: int) -> list[Any]:
    """The objects in these frames for which ``wanted`` is true; ``far``: how many objects are opened."""
    searched = _searched(holding_frames(frames), far)
    return _walk([one for frame in searched for one in variables_of(frame).values()], wanted, budget, far)


def holding_frames(frames: Sequence[FrameType]) -> list[FrameType]:
    """The frames whose variables count as held: neither the agent's nor an event loop's, which refers to everything."""
    loop = any(compat.loop_in(frame) is not None for frame in frames)
    return [frame for frame in frames if not is_ours(frame.f_code) and not (loop and compat.is_running_loop(frame.f_code))]


def _searched(frames: Iterable[FrameType], far: int) -> list[FrameType]:
    """The frames of the application's own code, then those of installed packages if ``far`` is large enough."""
    own: list[FrameType] = []
    others: list[FrameType] = []
    for frame in frames:
        (others if is_installed_library(frame.f_code.co_filename) else own).append(frame)
    return own if far < _OF_OTHERS else own + others


def _walk(roots: Iterable[Any], wanted: Callable[[Any], bool], budget: Budget, far: int) -> list[Any]:
    """The wanted objects among ``roots`` and what these refer to, nearest first. A wanted object is not opened."""
    found: list[Any] = []
    seen: dict[int, Any] = {}
    todo = deque(roots)
    near = min(NEAR_MAX, _NEAR_MIN + _NEAR_FOR_EACH * far)
    while todo and near and budget.step():
        thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # keeps it alive, or its identity could be reused
        near -= 1
        if wanted(thing):
            found.append(thing)
            continue
        if issubclass(type(thing), SKIPPED_CLASSES):
            continue
        held = named_by(thing)
        if held is not None:
            todo.extend(held)
        elif far and is_open(thing):
            far -= 1
            todo.extend(gc.get_referents(thing))
    return found
