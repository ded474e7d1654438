"""The detector's clock: seconds since the epoch that never run backwards, whatever is done to the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_SECONDS = 1.0


class Clock:
    """Tells the time: runs with the monotonic clock, and jumps forward when the wall clock was set (or the machine slept)."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """``wall``: seconds since the epoch; ``steady``: seconds since whenever, never backwards."""
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> float:
        """Seconds since the epoch."""
        steady, wall = self._steady(), self._wall()
        if wall - (steady + self._offset) > _STEP_SECONDS:
            self._offset = wall - steady
        return steady + self._offset
