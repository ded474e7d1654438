"""The pauses between an agent's attempts to reach a detector: longer after each failure, and random."""

from __future__ import annotations

import os
from collections.abc import Callable

BACKOFF_SECONDS_MIN = 0.05
_SHARE_MIN = 0.5


def _uniform(low: float, high: float) -> float:
    """A random number in between, without the program's own generator, and without ``random``, which a program may replace."""
    return low + (high - low) * int.from_bytes(os.urandom(4), "big") / 2**32


class Backoff:
    """The pauses of one agent. After a long absence a fleet reconnects over the second half of ``seconds_max``."""

    def __init__(self, seconds_max: float, spread: Callable[[float, float], float] = _uniform) -> None:
        """``seconds_max``: the longest pause; ``spread`` returns a random number between two."""
        self._seconds_max = seconds_max
        self._spread = spread
        self._next = BACKOFF_SECONDS_MIN

    def pause(self, lasted: float, *, interrupted: bool = False) -> float:
        """Seconds until the next attempt after a session of ``lasted`` seconds. An ``interrupted`` session is not a failure."""
        if interrupted or lasted > self._seconds_max:
            self._next = BACKOFF_SECONDS_MIN
        seconds = self._next * self._spread(_SHARE_MIN, 1.0)
        self._next = min(2 * self._next, self._seconds_max)
        return seconds
