"""Counts, at each lease, the parties that have not moved for a long time and are in no known wait.

It takes at most a small share of the processor's time: where there is much to read, it counts less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stilltrue.runtime.look.stacks import Places, Stacks

_SHARE_OF_TIME = 0.002


class Unexplained:
    """The newest count."""

    def __init__(self, stacks: Stacks, stand_seconds: float, failed: Callable[[str], None]) -> None:
        """A party that has not moved for ``stand_seconds`` stands still; ``failed`` is called with errors."""
        self._stacks = stacks
        self._stand_seconds = stand_seconds
        self._failed = failed
        self._before: tuple[float, Places] | None = None
        self._not_before = 0.0
        self._count: int | None = None

    def count(self) -> int | None:
        """How many stand still since the count before; None: not known yet. Never raises."""
        now = time.monotonic()
        if now < self._not_before:
            return self._count
        begun = time.thread_time()
        try:
            self._look(now)
        except Exception:  # noqa: BLE001 - it is for people only
            self._count = None
            self._failed("the unexplained are counted")
        self._not_before = now + (time.thread_time() - begun) / _SHARE_OF_TIME
        return self._count

    def _look(self, now: float) -> None:
        if self._before is None:
            self._before = now, self._stacks.places()
        elif now - self._before[0] >= self._stand_seconds:
            self._count = sum(one.unexplained for one in self._stacks.standing(self._before[1]))
            self._before = now, self._stacks.places()
