"""How long an agent pauses between two attempts to reach a detector: longer after each failure, and never all at once."""

from __future__ import annotations

import random

BACKOFF_SECONDS_MIN = 0.05
_SHARE_MIN = 0.5


class Backoff:
    """The pauses of one agent. After a long absence a fleet comes back over half of ``seconds_max``, and within it."""

    def __init__(self, seconds_max: float, spread: random.Random | None = None) -> None:
        """``seconds_max``: the longest pause; ``spread`` draws the agent's share of it, not the program's own generator."""
        self._seconds_max = seconds_max
        self._spread = spread or random.Random()
        self._next = BACKOFF_SECONDS_MIN

    def pause(self, lasted: float, *, interrupted: bool = False) -> float:
        """Seconds until the next attempt, after a session that ``lasted`` so long. An ``interrupted`` one has not failed."""
        if interrupted or lasted > self._seconds_max:
            self._next = BACKOFF_SECONDS_MIN
        seconds = self._next * self._spread.uniform(_SHARE_MIN, 1.0)
        self._next = min(2 * self._next, self._seconds_max)
        return seconds
