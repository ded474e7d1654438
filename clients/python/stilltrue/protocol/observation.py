"""What can only be seen at the instant of the cut, and how it changes the waits that were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, LocalWait


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen at a cut.

    ``waits`` are further waits; ``deadlines``: the parties whose waits end by themselves, and when; ``ways_out``: parties each
    of whose waits also ends when one of the given parties goes on (a task is cancelled when a sibling in its group fails).
    ``held``: parties whom no cancellation and no deadline of their call reaches, because their event loop is blocked.
    ``holds`` are further shares of resources that were found to be held; ``left``: by their recorded holder and resource, the
    shares that have been left behind, how many, and the party that stands for the holder who has ended.
    """

    waits: tuple[LocalWait, ...] = ()
    deadlines: Mapping[PartyName, float] = field(default_factory=dict)
    ways_out: Mapping[PartyName, tuple[PartyName, ...]] = field(default_factory=dict)
    held: frozenset[PartyName] = frozenset()
    holds: tuple[Hold, ...] = ()
    left: Mapping[tuple[PartyName, str], tuple[int, PartyName]] = field(default_factory=dict)

    def holds_among(self, recorded: Iterable[Hold]) -> tuple[Hold, ...]:
        """All shares that are held, recorded and found, those left behind by the parties that stand for their holders."""
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

    def added_to(self, waits: Iterable[LocalWait], ends: dict[PartyName, float], now: float) -> tuple[LocalWait, ...]:
        """All ``waits``, recorded and seen, each with the deadline by which its waiter is freed anyway (``ends`` adds some)."""
        for party, deadline in self.deadlines.items():
            ends[party] = min(deadline, ends.get(party, deadline))
        return tuple(
            wait.ending(ends.get(wait.waiter)).or_with(self.ways_out.get(wait.waiter, ()), now)
            for wait in (*waits, *self.waits)
        )


def nothing_more(_: float) -> Observation:
    """Nothing was seen beyond what is recorded."""
    return Observation()
