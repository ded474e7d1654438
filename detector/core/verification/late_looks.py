"""Looks that arrive after their round has ended (rule 9 of :mod:`~detector.core.verification.verifier`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from detector.core.protocol.assembler import Assembled
from detector.core.verification.round import INTERIM_SECONDS, Round
from stilltrue.model import ProcessId, ProcessName
from stilltrue.protocol.requests.look import Look

LATE_SECONDS_MAX = 60.0
"""How long after the end of its round a look still counts."""
ROUNDS_MAX = 8
"""Number of ended rounds that wait for late looks; each keeps its snapshot."""
ROUNDS_AGAIN_MAX = 3
"""The same for rounds of which every late process was late before and has not answered since; it may be silent for good."""


class LateLooks:
    """The ended rounds that lack answers. Completing one takes as long as ending it, so late looks are taken together."""

    def __init__(self) -> None:
        self._rounds: list[tuple[float, Round]] = []
        """Each with the time until which its late looks count, oldest first."""
        self._due: dict[int, float] = {}
        """By the identity of a round with new looks: when to complete it."""

    def expect(self, one: Round, now: float, *, again: bool = False) -> None:
        """A round has ended without the answers that it awaits; ``again``: of processes that were late before, all of them."""
        self._drop(now)
        if again and len(self._rounds) >= ROUNDS_AGAIN_MAX:
            return
        self._rounds.append((now + LATE_SECONDS_MAX, one))
        if len(self._rounds) > ROUNDS_MAX:
            self._due.pop(id(self._rounds.pop(0)[1]), None)

    def offer(self, process: ProcessId, look: Look, now: float) -> None:
        """A look has arrived that no round in progress waits for."""
        self._drop(now)
        for _, one in self._rounds:
            if one.assembled.snapshot.ref.id == look.snapshot and one.accept(process, look):
                self._complete_soon(one, now)
                return

    def leave_out(self, process: ProcessName, reason: str, now: float) -> None:
        """A process has left: its look will not arrive."""
        for _, one in self._rounds:
            one.leave_out(process, reason)
            if id(one) in self._due:
                self._complete_soon(one, now)

    def take(self, now: float) -> list[Round]:
        """Take the rounds to complete now; those that lack further looks stay."""
        found = [one for _, one in self._rounds if id(one) in self._due and self._due[id(one)] <= now]
        for one in found:
            del self._due[id(one)]
        self._rounds = [(until, one) for until, one in self._rounds if one.awaited or id(one) in self._due]
        self._drop(now)
        return found

    def due(self) -> float:
        """When :meth:`take` has something to return; infinity if never."""
        return min(self._due.values(), default=math.inf)

    def to_complete(self) -> Iterator[Assembled]:
        """The snapshots of the rounds with new looks."""
        return (one.assembled for _, one in self._rounds if id(one) in self._due)

    def _complete_soon(self, one: Round, now: float) -> None:
        """Complete a round at once if it has all answers, else after a pause, with the looks that arrive meanwhile."""
        at = now + INTERIM_SECONDS if one.awaited else now
        self._due[id(one)] = min(at, self._due.get(id(one), math.inf))

    def _drop(self, now: float) -> None:
        """Drop the rounds whose time is over, except those still to complete."""
        self._rounds = [(until, one) for until, one in self._rounds if now < until or id(one) in self._due]
