"""The pauses between an agent's attempts to reach a detector: longer after each failure, and random."""

from __future__ import annotations

import random

BACKOFF_SECONDS_MIN = 0.05
_SHARE_MIN = 0.5


class Backoff:
    """The pauses of one agent. After a long absence a fleet reconnects over the second half of ``seconds_max``."""

    def __init__(self, seconds_max: float, spread: random.Random | None = None) -> None:
        """``seconds_max``: the longest pause; ``spread`` randomizes the pauses (None: with the agent's own generator)."""
        self._seconds_max = seconds_max
        self._spread = spread or random.Random()
        self._next = BACKOFF_SECONDS_MIN

    def pause(self, lasted: float, *, interrupted: bool = False) -> float:
        """Seconds until the next attempt after a session of ``lasted`` seconds. An ``interrupted`` session is not a failure."""
        if interrupted or lasted > self._seconds_max:
            self._next = BACKOFF_SECONDS_MIN
        seconds = self._next * self._spread.uniform(_SHARE_MIN, 1.0)
        self._next = min(2 * self._next, self._seconds_max)
        return seconds
