"""The waits that one cut has observed in a process.

Published when complete, because a look in another thread reads it while the next cut is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import LocalWait
from stilltrue.runtime.calls.unanswered import UnansweredCall
from stilltrue.runtime.waits.reachability.task_waits import ReportedTaskWait
from stilltrue.runtime.waits.reachability.thread_waits import ReportedThreadWait
from stilltrue.runtime.waits.semaphores.left import LeftSemaphore

Same = Callable[[Mapping[int, FrameType]], bool]
"""Whether a wait still lasts, given the innermost frame of each thread."""


@dataclass(slots=True, eq=False)
class SeenAtCut:
    """Filled by the cutting thread, then read-only."""

    numbers: dict[tuple[int, int], tuple[ref[Any], WaitNumber, float, object]] = field(default_factory=dict)
    """By waiter and awaited object: that object, the number, when first seen, and a value that changes as the waiter runs."""
    local: dict[WaitNumber, tuple[LocalWait, str]] = field(default_factory=dict)
    """The waits as reported, each with the text that its ``what`` was made from."""
    same: dict[WaitNumber, Same] = field(default_factory=dict)
    handles: dict[PartyName, tuple[Any, ...]] = field(default_factory=dict)
    reported: dict[PartyName, ReportedTaskWait] = field(default_factory=dict)
    """Tasks' waits for objects that only blocked tasks can reach."""
    signalled: dict[PartyName, ReportedThreadWait] = field(default_factory=dict)
    """The same for threads."""
    ended: dict[PartyName, tuple[WaitNumber, float]] = field(default_factory=dict)
    """The waits of ended parties, and when they were first seen."""
    left: dict[PartyName, LeftSemaphore] = field(default_factory=dict)
    """The ended parties that stand for the holders of semaphores of multiprocessing."""
    unanswered: dict[PartyName, UnansweredCall] = field(default_factory=dict)
    """The ended parties that stand for handlers of calls that nobody can answer."""
    share_waits: frozenset[PartyName] = frozenset()
    """Parties that wait for shares which others may release. The second look reads them again."""
    parked: set[WaitNumber] = field(default_factory=set)
    """The waits that another process ends, in which a party is idle."""
    waiting: frozenset[PartyName] = frozenset()
    """The parties whose waits were observed."""

    def lasts(self, number: WaitNumber, frames: Mapping[int, FrameType]) -> bool:
        """Whether the observed wait with this number still lasts; ``frames``: the innermost frame of each thread."""
        same = self.same.get(number)
        return number in (known for known, _ in self.ended.values()) if same is None else same(frames)

    def handles_of(self, party: PartyName) -> tuple[Any, ...]:
        """The objects that end a party's wait when they are cancelled, closed or set."""
        return self.handles.get(party, ())
