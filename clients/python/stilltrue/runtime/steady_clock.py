"""The agent's clock: seconds since the epoch, unaffected by steps of the wall clock, so deadlines and durations stay right."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall clock's time at the start, plus the monotonic time since."""

    __slots__ = ("_steady", "offset")

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """``wall``: seconds since the epoch, read once; ``steady``: monotonic seconds from any origin."""
        self._steady = steady
        self.offset = wall() - steady()
        """Seconds to add to the steady clock."""

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._steady() + self.offset
