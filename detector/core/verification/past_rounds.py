"""Remembers the results of verification rounds, which makes later rounds smaller; rule 5 of the verifier relies on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from stilltrue.model import PartyName, ProcessId, ProcessName, WaitNumber
from stilltrue.protocol.requests.look import PartyLook

K = TypeVar("K")
Shown = TypeVar("Shown", "Known", "Idle")


class Key(NamedTuple):
    """A party in particular waits, in one incarnation of its process. A tuple, since a round looks up hundreds of thousands."""

    process: ProcessName
    incarnation: int
    party: PartyName
    waits: tuple[WaitNumber, ...]


@dataclass(slots=True, kw_only=True)
class Known:
    """The result of the latest look at a party.

    ``since``: when the first round that saw it in these waits ended. ``until``: its deadline, by the detector's clock.
    """

    look: PartyLook
    looked_at: float
    again_seconds: float
    since: float
    until: float | None = None
    verified: bool = False

    def due(self, now: float) -> bool:
        """Whether it is time to look again."""
        return (self.until is not None and self.until <= now) or now >= self.looked_at + self.again_seconds

    @property
    def as_moved_on(self) -> PartyLook:
        """The look as if the party had moved on. Built without ``replace``, which is slower; a round has thousands."""
        look = self.look
        return PartyLook(
            party=look.party,
            unchanged=False,
            deadline=look.deadline,
            interruptible=look.interruptible,
            grown_by=look.grown_by,
        )

    @property
    def rules_out(self) -> bool:
        """Whether the look rules out an accusation: the party may move on by itself, or the look was inconclusive."""
        return bool(self.look.doubt or not self.look.unchanged or any(way.party is None for way in self.look.ways_out))


@dataclass(slots=True, kw_only=True)
class Idle:
    """The result of the latest look at a process's idleness, after ``happenings`` events. If ``doubt`` is empty, it is idle."""

    happenings: int
    doubt: str
    looked_at: float
    again_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The latest looks at parties, and at processes that seemed idle."""

    parties: Mapping[Key, Known] = field(default_factory=dict)
    processes: Mapping[ProcessId, Idle] = field(default_factory=dict)


NOTHING = Memory()


def copied(known: Mapping[K, Shown]) -> dict[K, Shown]:
    """A copy of the mapping and its entries."""
    return {key: replace(one) for key, one in known.items()}
