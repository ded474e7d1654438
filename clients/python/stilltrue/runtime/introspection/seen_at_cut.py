"""What one cut has seen of the waits of a process.

A look reads it while another thread may cut, so it is published when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.model import PartyName, WaitNumber
from stilltrue.runtime.seen.reachability.waits import Reported

Same = Callable[[Mapping[int, FrameType]], bool]
"""Whether a wait is still the very same, given the innermost frame of each thread."""


@dataclass(slots=True, eq=False)
class SeenAtCut:
    """Filled by the thread that cuts; after that nobody changes it."""

    numbers: dict[tuple[int, int], tuple[ref[Any], WaitNumber, float, object]] = field(default_factory=dict)
    """By the waiter and what it waits for: that, its number, since when it is seen, and what changes when the waiter runs."""
    same: dict[WaitNumber, Same] = field(default_factory=dict)
    handles: dict[PartyName, tuple[Any, ...]] = field(default_factory=dict)
    reported: dict[PartyName, Reported] = field(default_factory=dict)
    """The waits for what nobody but the blocked can reach."""
    ended: dict[PartyName, tuple[WaitNumber, float]] = field(default_factory=dict)
    """The waits of those that have ended, and since when they are seen."""
    of_shares: frozenset[PartyName] = frozenset()
    """The parties that wait for what others may give back: the second look reads that anew."""
    waiting: frozenset[PartyName] = frozenset()
    """The parties whose waits were seen."""

    def lasts(self, number: WaitNumber, frames: Mapping[int, FrameType]) -> bool:
        """Whether the observed wait with this number is still the very same; ``frames``: the innermost of each thread."""
        same = self.same.get(number)
        return number in (known for known, _ in self.ended.values()) if same is None else same(frames)

    def handles_of(self, party: PartyName) -> tuple[Any, ...]:
        """What ends the wait of a party when it is cancelled, closed or set."""
        return self.handles.get(party, ())
