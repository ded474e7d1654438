"""How far messages may raise a process's colour: by a rate, so that no forged stamps burn the numbers to come.

A marker comes from the detector and is always followed. A message's colour is one that the detector gave to others a moment
ago, so after the first marker it is ahead by as much as a detector counts meanwhile. What a marker adds is taken off: else a
colour that was forged in one process, and which the detector then gives to all, would let each of the others be pushed on by
as much again.
"""

from __future__ import annotations

SECONDS_BEGUN_WITH = 1000
"""What the first marker grants, in seconds of the rate."""
SECONDS_LEFT = 1
"""What no marker takes, in seconds of the rate."""


class ColourJumps:
    """A bucket of steps ahead, which time fills."""

    def __init__(self, most: int, per_second: int) -> None:
        """``most``: in all, and also before the first marker."""
        self._most = float(most)
        self._per_second = float(per_second)
        self._left = float(most)
        self._at: float | None = None

    def follows(self, ahead: int, now: float) -> None:
        """A marker is ``ahead`` of the process's colour."""
        if self._at is None:
            self._at, self._left = now, min(self._most, SECONDS_BEGUN_WITH * self._per_second)
        else:
            self._fill(now)
            self._left = max(self._left - ahead, min(self._most, SECONDS_LEFT * self._per_second))

    def grants(self, ahead: int, now: float) -> bool:
        """Whether a message that is ``ahead`` of the process's colour may be believed."""
        if self._at is not None:
            self._fill(now)
        if ahead > self._left:
            return False
        self._left -= ahead
        return True

    def _fill(self, now: float) -> None:
        before = self._at or 0.0
        self._left = min(self._most, self._left + max(0.0, now - before) * self._per_second)
        self._at = now
