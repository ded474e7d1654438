"""What verification rounds have shown: it makes later rounds smaller, and rule 5 of the verifier rests on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from stilltrue.model import PartyName, ProcessId, ProcessName, WaitNumber
from stilltrue.protocol.requests.look import PartyLook

K = TypeVar("K")
Shown = TypeVar("Shown", "Known", "Idle")


class Key(NamedTuple):
    """One party in its very waits, in one incarnation of its process. A tuple: a round looks up hundreds of thousands."""

    process: ProcessName
    incarnation: int
    party: PartyName
    waits: tuple[WaitNumber, ...]


@dataclass(slots=True, kw_only=True)
class Known:
    """What the latest look at a party showed.

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
    def gone_on(self) -> PartyLook:
        """The look, as if the party had gone on. Made by hand: ``replace`` takes longer, and a round has thousands."""
        look = self.look
        return PartyLook(
            party=look.party,
            unchanged=False,
            deadline=look.deadline,
            interruptible=look.interruptible,
            grown_by=look.grown_by,
        )

    @property
    def bars(self) -> bool:
        """It showed that the party may go on whatever others do, or showed nothing."""
        return bool(self.look.doubt or not self.look.unchanged or any(way.party is None for way in self.look.ways_out))


@dataclass(slots=True, kw_only=True)
class Idle:
    """What the latest look at a process showed of its idleness after ``happenings`` events; an empty ``doubt``: it is idle."""

    happenings: int
    doubt: str
    looked_at: float
    again_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is known of parties that were looked at, and of processes that seemed idle."""

    parties: Mapping[Key, Known] = field(default_factory=dict)
    processes: Mapping[ProcessId, Idle] = field(default_factory=dict)


NOTHING = Memory()


def copied(known: Mapping[K, Shown]) -> dict[K, Shown]:
    """The same entries, as objects of their own."""
    return {key: replace(one) for key, one in known.items()}
