"""What only an inspection at the instant of the cut reveals, and how it amends the recorded waits and holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import Hold, LocalWait


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen at a cut.

    ``waits`` are further waits. ``deadlines``: parties whose waits end by themselves, and when (seconds since the epoch).
    ``ways_out``: for a party, others whose progress also ends its waits (a task is cancelled when a sibling in its group
    fails). ``held``: parties that no cancellation or deadline of their call can reach, because their event loop is blocked.
    ``parked``: those of ``waits`` that another process ends, by a message or by its end. ``intercepted``: the parties of queued
    calls that the application's interceptors work on, each with the time at which gRPC ends the call (None: never). ``holds``
    are further shares of resources in use. ``left``: for a recorded holder that has ended and a resource, the number of its
    shares left behind, and the party that stands for the ended holder. ``unanswered``: by the party that has served it, each
    call that nobody can answer any more, with the party that stands for its ended handler.
    """

    waits: tuple[LocalWait, ...] = ()
    deadlines: Mapping[PartyName, float] = field(default_factory=dict)
    ways_out: Mapping[PartyName, tuple[PartyName, ...]] = field(default_factory=dict)
    held: frozenset[PartyName] = frozenset()
    parked: frozenset[WaitNumber] = frozenset()
    intercepted: Mapping[PartyName, float | None] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    left: Mapping[tuple[PartyName, str], tuple[int, PartyName]] = field(default_factory=dict)
    unanswered: Mapping[PartyName, PartyName] = field(default_factory=dict)

    def merge_holds(self, recorded: Iterable[Hold]) -> tuple[Hold, ...]:
        """All shares, ``recorded`` and seen; shares left behind are held by the party that stands for the ended holder."""
        counts = {share: count for share, (count, _) in self.left.items()}
        found: list[Hold] = []
        for hold in recorded:
            share = (hold.party, hold.resource)
            if counts.get(share):
                counts[share] -= 1
                found.append(replace(hold, party=self.left[share][1]))
            else:
                found.append(hold)
        return (*found, *self.holds)

    def merge_waits(self, waits: Iterable[LocalWait], ends: dict[PartyName, float], now: float) -> tuple[LocalWait, ...]:
        """All waits, recorded (``waits``) and seen, each with the time by which its waiter is freed anyway.

        ``ends`` has the deadlines of interruptible calls by party; the deadlines that were seen are added to it.
        """
        for party, deadline in self.deadlines.items():
            ends[party] = min(deadline, ends.get(party, deadline))
        return tuple(
            wait.ending(ends.get(wait.waiter)).or_with(self.ways_out.get(wait.waiter, ()), now)
            for wait in (*waits, *self.waits)
        )


def observe_nothing(_: float) -> Observation:
    """An observer that sees nothing beyond what is recorded."""
    return Observation()
