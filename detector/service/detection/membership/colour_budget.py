"""How far agents may push the snapshot number on: by a rate, so that no forged colour uses the numbers up."""

from __future__ import annotations

AHEAD_MAX = 10**10
"""All that agents may be ahead at once: what a detector that has lost its state has to catch up with.

It is more than forged stamps can push an agent to (:mod:`stilltrue.protocol.colour_jumps`): what an outsider says to an honest
process does not get that process refused.
"""

PER_SECOND = 2000.0
"""How fast that is granted anew. 2**53 numbers last for 140,000 years of it."""


class ColourRefusedError(Exception):
    """A process claims a colour that no detector can have given it."""


class ColourBudget:
    """Grants steps ahead, as a bucket that holds ``AHEAD_MAX`` and fills by ``PER_SECOND``."""

    def __init__(self, now: float) -> None:
        """``now``: seconds, of a clock that never runs backwards."""
        self._left = float(AHEAD_MAX)
        self._at = now

    def spend(self, colour: int, newest: int, now: float) -> None:
        """A process has cut for ``colour``; ``newest`` is the last that was given. Raises :class:`ColourRefusedError`."""
        ahead = colour - newest
        if ahead <= 0:
            return
        self._left = min(float(AHEAD_MAX), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if ahead > self._left:
            raise ColourRefusedError(
                f"snapshot number {colour} is too far ahead of the newest ({newest}): a stamp was forged, restart the process"
            )
        self._left -= ahead
