"""Counts, at each lease, the parties that have not moved for long and are in no known wait.

Uses at most a small share of processor time: with more to read, it counts less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stilltrue.runtime.look.stacks import Positions, Stacks

_SHARE_OF_TIME = 0.002


class Unexplained:
    """The newest count."""

    def __init__(self, stacks: Stacks, stand_seconds: float, failed: Callable[[str], None]) -> None:
        """``stand_seconds``: a party that has not moved for this time stands still; ``failed`` receives errors."""
        self._stacks = stacks
        self._stand_seconds = stand_seconds
        self._failed = failed
        self._before: tuple[float, Positions] | None = None
        self._not_before = 0.0
        self._count: int | None = None

    def count(self) -> int | None:
        """The number of unexplained parties since the previous count; None until known. Never raises."""
        now = time.monotonic()
        if now < self._not_before:
            return self._count
        begun = time.thread_time()
        try:
            self._look(now)
        except Exception:  # noqa: BLE001 - information for people only
            self._count = None
            self._failed("counting unexplained parties")
        self._not_before = now + (time.thread_time() - begun) / _SHARE_OF_TIME
        return self._count

    def _look(self, now: float) -> None:
        if self._before is None:
            self._before = now, self._stacks.positions()
        elif now - self._before[0] >= self._stand_seconds:
            self._count = sum(one.unexplained for one in self._stacks.standing(self._before[1]))
            self._before = now, self._stacks.positions()
