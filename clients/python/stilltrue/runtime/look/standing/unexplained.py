"""Counts, at each lease, the parties that have not moved for a while and are in no known wait, and the calls that they serve.

Besides these calls, it counts the parties that serve none and are in a wait that idle ones are not in: they are stuck, too.
So are those that wait, for a lock, say, for a party that waits for the next item of a stream: that is a known wait, but an item
comes only if the other end sends one. So do calls that poll, or that wait for a party that polls.

Uses at most a small share of processor time: with more to read, it counts less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stilltrue.model import PartyName
from stilltrue.protocol.requests.stacks import StandingParty
from stilltrue.runtime.look.standing.stacks import Positions, Stacks

CALL_SECONDS_MIN = 5.0
"""A call counts once its party has not moved for this time: many a query takes some seconds."""
_SHARE_OF_TIME = 0.002


class Unexplained:
    """The newest count."""

    def __init__(self, stacks: Stacks, stand_seconds: float, failed: Callable[[str], None]) -> None:
        """``stand_seconds``: a party that has not moved for this time stands still; ``failed`` receives errors."""
        self._stacks = stacks
        self._stand_seconds = stand_seconds
        self._failed = failed
        self._before: tuple[float, Positions] | None = None
        self._not_before = 0.0
        self._count: int | None = None
        self._calls: int | None = None
        self._waits: int | None = None
        self._since: dict[PartyName, float] = {}
        """Since when each party whose reply is due, or that is never idle so, has been known not to move."""

    def count(self) -> int | None:
        """The number of unexplained parties since the previous count; None until known. Never raises."""
        now = time.monotonic()
        if now < self._not_before:
            return self._count
        begun = time.thread_time()
        try:
            self._look(now)
        except Exception:  # noqa: BLE001 - information for people only
            self._count = self._calls = self._waits = None
            self._failed("counting unexplained parties")
        self._not_before = now + (time.thread_time() - begun) / _SHARE_OF_TIME
        return self._count

    def calls(self) -> int | None:
        """The number of calls whose reply is due from these parties, or from parties that wait for them; of the same count."""
        return self._calls

    def waits(self) -> int | None:
        """The number of parties that serve no call and wait, for a lock or an answer, for such a party or an unknown one."""
        return self._waits

    def _look(self, now: float) -> None:
        if self._before is None:
            self._before = now, self._stacks.positions()
        elif now - self._before[0] >= self._stand_seconds:
            found = self._stacks.standing(self._before[1])
            stuck = _with_waiters({one.party for one in found if one.unexplained or one.reads_stream or one.polls}, found)
            due = [one for one in found if (one.owes_reply or one.never_idle) and one.party in stuck]
            self._since = {one.party: self._since.get(one.party, self._before[0]) for one in due}
            self._count = sum(one.unexplained for one in found)
            long = [one for one in due if now - self._since[one.party] >= CALL_SECONDS_MIN]
            self._calls = sum(one.owes_reply for one in long)
            self._waits = sum(not one.owes_reply for one in long)
            self._before = now, self._stacks.positions()


def _with_waiters(stuck: set[str], found: Iterable[StandingParty]) -> set[str]:
    """``stuck`` with the parties that wait, directly or not, for one of them."""
    waiters: dict[str, list[str]] = {}
    for one in found:
        for holder in one.held_by:
            waiters.setdefault(holder, []).append(one.party)
    todo, seen = list(stuck), set(stuck)
    while todo:
        fresh = [party for party in waiters.get(todo.pop(), ()) if party not in seen]
        seen.update(fresh)
        todo += fresh
    return seen
