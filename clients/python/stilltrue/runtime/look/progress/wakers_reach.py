"""Whether code that may set something reaches it: along references nearby, or along the names in the program's own code."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames
from stilltrue.runtime.look.ways_out.actor_code import own_reached, own_reached_by
from stilltrue.runtime.look.ways_out.kinds.wakers import frame_roots
from stilltrue.runtime.look.ways_out.named_reach import NamedReach
from stilltrue.runtime.look.ways_out.reach import Reach


class WakersReach:
    """A search for some objects, from one frame or callback after another."""

    def __init__(self, targets: Iterable[Any], budget: Budget) -> None:
        self._reach = Reach(targets, budget)
        self._along_names = NamedReach(self._reach, budget)

    def found_from(self, frame: FrameType) -> bool:
        """Whether the code of a frame reaches one of the targets."""
        roots = frame_roots(frame, variables_of(frame))
        return bool(self._reach.held(roots, ends=True)) or self._found_along(roots, own_reached(frame))

    def found_by(self, callback: Any, arguments: Iterable[Any] = ()) -> bool:
        """Whether a callback reaches one of the targets."""
        roots = (callback, *arguments)
        return bool(self._reach.held(roots, ends=True)) or self._found_along(roots, own_reached_by(callback, arguments))

    def _found_along(self, roots: tuple[Any, ...], own: ReachableNames) -> bool:
        if not own.names:
            return False
        found = self._along_names.held((*roots, *own.global_values), own.names)
        return bool(found.targets) or bool(found.beyond)
