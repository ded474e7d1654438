"""The detector's clock: seconds since the epoch that never run backwards, even if the machine's clock is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

_STEP_SECONDS = 1.0


class Clock:
    """Runs on the monotonic clock, so that durations are exact; :meth:`catch_up` follows a wall clock that was set forward."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """``wall``: seconds since the epoch; ``steady``: monotonic seconds."""
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._steady() + self._offset

    def catch_up(self) -> float:
        """Jump to the wall clock if it was set forward or the machine slept; returns the seconds jumped."""
        ahead = self._wall() - self.now()
        if ahead <= _STEP_SECONDS:
            return 0.0
        self._offset += ahead
        return ahead


def utc_milliseconds(seconds: float) -> str:
    """A moment in UTC, to the millisecond: ``2026-11-20T14:02:11.500Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
