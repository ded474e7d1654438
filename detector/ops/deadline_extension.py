"""Extends deadlines while the event loop could not receive what was due, so that no member counts as late for it."""

from __future__ import annotations

import math

HELD_SECONDS_MIN = 0.1
"""Shorter delays of the loop are ignored."""
LONGER_SECONDS_MAX = 1.0
REST_SECONDS = 2.0
"""Minimum time between two extensions, so that under permanent load late members do count as late."""


UNREAD_SECONDS_MAX = 10.0
"""Maximum wait for unread messages: reading the first reports of thousands of members takes seconds."""
_UNREAD_TICK_SECONDS = 0.05
_UNREAD_PAUSE_SECONDS = 1.0


class DeadlineExtension:
    """Decides from when on members count as late. Times in seconds, by the caller's clock."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._unread_since = self._unread_until = -math.inf

    def held(self, seconds: float, now: float) -> None:
        """The loop was blocked for ``seconds``: extend deadlines by as much, up to a bound, to read what has arrived."""
        if seconds >= HELD_SECONDS_MIN and now >= self._until + REST_SECONDS:
            self._until = now + min(seconds, LONGER_SECONDS_MAX)

    def unread(self, now: float) -> None:
        """Messages that arrived in time are still unread: extend deadlines briefly, up to a bound."""
        if now >= self._unread_until + _UNREAD_PAUSE_SECONDS:
            self._unread_since = now
        if now < self._unread_since + UNREAD_SECONDS_MAX:
            self._unread_until = now + _UNREAD_TICK_SECONDS

    def due(self, due: float) -> float:
        """The extended deadline for ``due``."""
        return max(due, self._until, self._unread_until)
