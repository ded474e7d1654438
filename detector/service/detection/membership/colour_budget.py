"""Limits how fast agents may advance the snapshot number, so that forged colours cannot use the numbers up."""

from __future__ import annotations

AHEAD_MAX = 10**10
"""How far agents may be ahead at once, as after the detector has lost its state.

This is more than forged stamps can advance an agent (:mod:`stilltrue.protocol.colour_jumps`), so an outsider cannot get an
honest process refused.
"""

PER_SECOND = 2000.0
"""The refill rate, at which 2**53 numbers last 140,000 years."""


class ColourRefusedError(Exception):
    """A process claims a colour that no detector can have assigned."""


class ColourBudget:
    """A token bucket for steps ahead: it holds ``AHEAD_MAX``, and refills at ``PER_SECOND``."""

    def __init__(self, now: float) -> None:
        """``now``: seconds of a monotonic clock."""
        self._left = float(AHEAD_MAX)
        self._at = now

    def spend(self, colour: int, newest: int, now: float) -> None:
        """Accept ``colour`` from a process; ``newest``: the last assigned one. Raises :class:`ColourRefusedError`."""
        ahead = colour - newest
        if ahead <= 0:
            return
        self._left = min(float(AHEAD_MAX), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if ahead > self._left:
            raise ColourRefusedError(
                f"snapshot number {colour} is too far ahead of the newest ({newest}): a stamp was forged; restart the process"
            )
        self._left -= ahead
