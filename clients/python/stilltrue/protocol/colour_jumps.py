"""Limits the rate at which messages may raise a process's colour, so that forged stamps cannot use up the snapshot numbers.

A marker comes from the detector and is always followed. A message's colour was issued by the detector a moment ago, so after
the first marker it can be ahead only by as much as a detector counts meanwhile. A marker's own jump is deducted from the
budget: otherwise a colour that was forged in one process and then adopted by the detector would let every other process be
pushed ahead by as much again.
"""

from __future__ import annotations

INITIAL_SECONDS = 1000
"""The budget after the first marker, in seconds at the given rate."""
RESERVE_SECONDS = 1
"""The part of the budget that markers never use up, in seconds at the given rate."""


class ColourJumps:
    """A token bucket; a token allows a message to raise the colour by one."""

    def __init__(self, most: int, per_second: int) -> None:
        """``most``: its capacity, and the budget before the first marker. ``per_second``: the rate at which it refills."""
        self._most = float(most)
        self._per_second = float(per_second)
        self._left = float(most)
        self._at: float | None = None

    def follows(self, ahead: int, now: float) -> None:
        """A marker raises the process's colour by ``ahead``."""
        if self._at is None:
            self._at, self._left = now, min(self._most, INITIAL_SECONDS * self._per_second)
        else:
            self._fill(now)
            self._left = max(self._left - ahead, min(self._most, RESERVE_SECONDS * self._per_second))

    def grants(self, ahead: int, now: float) -> bool:
        """Whether a message may raise the process's colour by ``ahead``; if so, deducts it."""
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
