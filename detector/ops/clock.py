"""The detector's clock: seconds since the epoch that never run backwards, whatever is done to the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

_STEP_SECONDS = 1.0


class Clock:
    """Counts time by the monotonic clock, so that durations are true; follows a wall clock set forward when asked."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """``wall``: seconds since the epoch; ``steady``: seconds since whenever, never backwards."""
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._steady() + self._offset

    def catch_up(self) -> float:
        """Jump to the wall clock if it was set forward (or the machine slept): by how many seconds."""
        ahead = self._wall() - self.now()
        if ahead <= _STEP_SECONDS:
            return 0.0
        self._offset += ahead
        return ahead


def utc_milliseconds(seconds: float) -> str:
    """A moment in UTC, to the millisecond: ``2026-11-20T14:02:11.500Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
