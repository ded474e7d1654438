"""The pace of snapshots: how many requests are granted, and for how long joins and questions put the next snapshot off.

The rules are the initiator's (:mod:`~detector.core.protocol.initiator`): 2 for requests, 5 for a rush of joins, 6 for a crowd
of questions.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

RUSH_SECONDS_PER_MEMBER = 0.004
RUSH_SECONDS_MAX = 15.0
"""Rule 5: thousands of members take longer to join than ``rush_seconds_max``; this is the longest."""
CROWD_LASTS_PAUSES = 5
"""Rule 6: how many pauses a crowd lasts beyond the last moment at which many questions waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When snapshots begin and end. ``period_seconds`` 0: only on demand.

    Rule 5: ``rush_members`` that join within ``rush_seconds`` are many; no snapshot is put off beyond ``rush_seconds_max``.
    Rule 6: ``crowd_questions`` that wait at once are a crowd, and the pause is ``crowd_seconds``.
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
    """The requests, joins and questions of the last moments; times are arguments."""

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
        """Grant the request of a process, if one may be granted now (rule 2)."""
        allowance = self._allowance_now(now)
        if allowance < 1:
            return False
        self._allowance, self._allowance_at = allowance - 1, now
        return True

    def grants_at(self, now: float) -> float:
        """When the next request may be granted."""
        return now + (1 - self._allowance_now(now)) * self._timing.trigger_seconds_min

    def _allowance_now(self, now: float) -> float:
        """How many requests may be granted at once: a bucket that holds the burst and fills by one each interval."""
        timing = self._timing
        grown = (now - self._allowance_at) / timing.trigger_seconds_min if self._allowance_at > -math.inf else math.inf
        return min(timing.triggers_burst_max, self._allowance + grown)

    def rush_until(self, members: int) -> float:
        """Rule 5: until when snapshots that no question demands are put off, in a fleet of ``members``."""
        joins, timing = self._joins, self._timing
        if len(joins) < timing.rush_members or joins[-1] - joins[0] > timing.rush_seconds:
            return -math.inf
        longest = max(timing.rush_seconds_max, min(members * RUSH_SECONDS_PER_MEMBER, RUSH_SECONDS_MAX))
        return min(joins[-1] + timing.rush_seconds, self._rush_begun + longest)

    def crowd_until(self, now: float) -> float:
        """Rule 6: until when questions wait for others. A crowd lasts until for a while only few have waited."""
        crowded = now < self._crowd_at + CROWD_LASTS_PAUSES * self._timing.crowd_seconds
        return self._questions_at + self._timing.crowd_seconds if crowded else -math.inf
