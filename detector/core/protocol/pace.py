"""Limits the pace of snapshots: grants requests, and delays snapshots while many members join or many questions wait.

The rules are the initiator's (:mod:`~detector.core.protocol.initiator`): 2 for requests, 5 for a rush of joins, 6 for a crowd
of questions.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

RUSH_SECONDS_PER_MEMBER = 0.006
RUSH_SECONDS_MAX = 60.0
"""Rule 5: thousands of members take longer to join than ``rush_seconds_max``; this bounds the delay for them."""
CROWD_LASTS_PAUSES = 5
"""Rule 6: a crowd lasts this many pauses after the last time that many questions waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When snapshots begin and end. With ``period_seconds`` 0 they begin only on demand.

    Rule 5: ``rush_members`` joining within ``rush_seconds`` are a rush; it delays snapshots by at most ``rush_seconds_max``.
    Rule 6: ``crowd_questions`` waiting at once are a crowd; the pause is ``crowd_seconds``.
    """

    period_seconds: float = 1.0
    trigger_seconds_min: float = 0.5
    triggers_burst_max: int = 5
    give_up_seconds: float = 1.5
    suspect_seconds: float = 0.25
    pending_snapshots_max: int = 4
    rush_members: int = 16
    rush_seconds: float = 0.5
    rush_seconds_max: float = 4.0
    crowd_questions: int = 8
    crowd_seconds: float = 0.2


class Pace:
    """Tracks recent requests, joins and questions. Times are arguments."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._allowance = float(timing.triggers_burst_max)
        self._allowance_at = -math.inf
        self._joins: deque[float] = deque(maxlen=timing.rush_members)
        self._rush_begun = -math.inf
        self._crowd_at = -math.inf
        self._questions_at = -math.inf

    def joined(self, now: float) -> None:
        """A member joins."""
        if not self._joins or now > self._joins[-1] + self._timing.rush_seconds:
            self._rush_begun = now
        self._joins.append(now)

    def asked(self, waiting: int, now: float) -> None:
        """A question arrives, as one of ``waiting``."""
        if waiting >= self._timing.crowd_questions:
            self._crowd_at = now

    def begun(self, now: float, *, for_questions: bool) -> None:
        """A snapshot begins."""
        self._rush_begun = now
        if for_questions:
            self._questions_at = now

    def grant(self, now: float) -> bool:
        """Whether a process's request may be granted now; if so, count it (rule 2)."""
        allowance = self._allowance_now(now)
        if allowance < 1:
            return False
        self._allowance, self._allowance_at = allowance - 1, now
        return True

    def grants_at(self, now: float) -> float:
        """The time at which the next request may be granted."""
        return now + (1 - self._allowance_now(now)) * self._timing.trigger_seconds_min

    def _allowance_now(self, now: float) -> float:
        """Number of requests that may be granted now: a token bucket that holds a burst and gains one token per interval."""
        timing = self._timing
        grown = (now - self._allowance_at) / timing.trigger_seconds_min if self._allowance_at > -math.inf else math.inf
        return min(timing.triggers_burst_max, self._allowance + grown)

    def rush_until(self, members: int) -> float:
        """Rule 5: until when a fleet of ``members`` delays snapshots that no question asks for."""
        joins, timing = self._joins, self._timing
        if len(joins) < timing.rush_members or joins[-1] - joins[0] > timing.rush_seconds:
            return -math.inf
        longest = max(timing.rush_seconds_max, min(members * RUSH_SECONDS_PER_MEMBER, RUSH_SECONDS_MAX))
        return min(joins[-1] + timing.rush_seconds, self._rush_begun + longest)

    def crowd_until(self, now: float) -> float:
        """Rule 6: until when questions wait to share a snapshot. A crowd ends once only few have waited for a while."""
        crowded = now < self._crowd_at + CROWD_LASTS_PAUSES * self._timing.crowd_seconds
        return self._questions_at + self._timing.crowd_seconds if crowded else -math.inf
