"""The time limit of a look: processor time of its thread, used in slices with yields to other threads."""

from __future__ import annotations

import time

SECONDS_MAX = 8.0
"""For a look at a few parties. The detector waits for less by default, but a late look counts for the next answer. A program
with a large library (SQLAlchemy, FastAPI) takes 2 s, or 6 s while its processors are busy."""
SECONDS_FOR_PARTY = 0.05
SECONDS_MAX_FOR_ALL = 16.0
"""For a look at many parties: forty stuck requests of a web framework take 6 s."""
SLICE_SECONDS = 0.004
_STEPS_UNSEEN = 128
"""Reading the clock takes as long as several steps."""


def seconds_for(parties: int) -> float:
    """The limit for a look at this many parties, in seconds of processor time."""
    return min(SECONDS_MAX + SECONDS_FOR_PARTY * parties, SECONDS_MAX_FOR_ALL)


class Budget:
    """The remaining time of one look."""

    def __init__(self, seconds_max: float = SECONDS_MAX) -> None:
        """``seconds_max``: processor time of the current thread."""
        begun = time.thread_time()
        self._end = begun + seconds_max
        self._pause_at = begun + SLICE_SECONDS
        self._steps = 0
        self.spent = False

    def step(self) -> bool:
        """Count one small step; return False when the time is used up."""
        self._steps += 1
        return not self.spent if self._steps % _STEPS_UNSEEN else self.large_step()

    def large_step(self) -> bool:
        """The same for a step that takes as long as many small ones, such as reading the functions that some code calls."""
        now = time.thread_time()
        self.spent = self.spent or now >= self._end
        if now >= self._pause_at:
            time.sleep(0)  # releases the interpreter to waiting threads
            self._pause_at = now + SLICE_SECONDS
        return not self.spent
