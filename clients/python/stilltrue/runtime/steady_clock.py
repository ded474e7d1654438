"""The agent's clock: seconds since the epoch that no step of the wall clock touches: deadlines and durations stay true."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall clock as it was at the start, plus what the monotonic clock has counted since."""

    __slots__ = ("_steady", "offset")

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """``wall``: seconds since the epoch, read once; ``steady``: seconds since whenever, never backwards."""
        self._steady = steady
        self.offset = wall() - steady()
        """What is added to the steady clock."""

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._steady() + self.offset
