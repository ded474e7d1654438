"""Patience: what was to come by some moment is not late while the event loop could not have received it."""

from __future__ import annotations

import math

HELD_SECONDS_MIN = 0.1
"""A loop that was held up for less is on time."""
LONGER_SECONDS_MAX = 1.0
REST_SECONDS = 2.0
"""After it was more patient once, it is not again for this long: under a load that never ends, what is late is late."""


UNREAD_SECONDS_MAX = 10.0
"""For how long at once it waits for what has come to be read: the first reports of thousands of members take seconds."""
_UNREAD_TICK_SECONDS = 0.05
_UNREAD_PAUSE_SECONDS = 1.0


class Patience:
    """Decides when late members may be counted. Times in seconds, by the caller's clock."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._unread_since = self._unread_until = -math.inf

    def held(self, seconds: float, now: float) -> None:
        """The loop was held up for ``seconds``: what came meanwhile is read first, for as long as that and a bounded time."""
        if seconds >= HELD_SECONDS_MIN and now >= self._until + REST_SECONDS:
            self._until = now + min(seconds, LONGER_SECONDS_MAX)

    def unread(self, now: float) -> None:
        """What has come in time still waits to be read: look again shortly, up to a bound."""
        if now >= self._unread_until + _UNREAD_PAUSE_SECONDS:
            self._unread_since = now
        if now < self._unread_since + UNREAD_SECONDS_MAX:
            self._unread_until = now + _UNREAD_TICK_SECONDS

    def due(self, due: float) -> float:
        """When to look at what is ``due``."""
        return max(due, self._until, self._unread_until)
