"""What is true of the fleet, and what an answer may say of it.

Rules:

1. A TRUE is a breach when nobody is stuck, and when it names others than the stuck.
2. A FALSE is a breach if the deadlock that stands had been proved before the question: it was so when the snapshot began.
3. An incident that was listed as open stays so, under its id, while its deadlock stands.
4. Ids of snapshots only rise, over every restart.
5. A snapshot that was listed is listed for good, but where its disk vanished.
6. Once nobody is stuck and no fault is left, no incident stays open (``Nemesis`` waits for it).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stilltrue.model import PartyName, process_of
from stilltrue.v1 import detector_pb2, snapshot_pb2


class BreachError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Oracle:
    """Knows the truth, since the nemesis makes it. ``epoch`` counts its changes."""

    epoch: int = 0
    stuck: frozenset[str] = frozenset()
    proved: bool = False
    incident: str = ""
    newest: int = 0
    listed: set[int] = field(default_factory=set)
    answers: dict[str, int] = field(default_factory=dict)

    def forms(self, names: Iterable[str]) -> None:
        """A deadlock of these processes is about to be."""
        self._changes(frozenset(names))

    def ends(self) -> None:
        """One of its processes is about to be killed."""
        self._changes(frozenset())

    def _changes(self, stuck: frozenset[str]) -> None:
        self.epoch += 1
        self.stuck, self.proved, self.incident = stuck, False, ""

    def answered(self, epoch: int, proved: bool, verdict: snapshot_pb2.Verdict) -> None:
        """An ask was answered; ``epoch`` and ``proved`` are as they were when it began."""
        name = snapshot_pb2.Holds.Name(verdict.holds)
        self.answers[name] = self.answers.get(name, 0) + 1
        if verdict.snapshot.id and epoch == self.epoch:
            self.newest = max(self.newest, verdict.snapshot.id)
        if epoch != self.epoch:
            return
        if verdict.holds == snapshot_pb2.HOLDS_TRUE:
            named = {process_of(PartyName(party)) for party in verdict.core}
            if named != self.stuck:
                raise BreachError(f"TRUE of {sorted(named)}, stuck are {sorted(self.stuck)}: {verdict.witness.text}")
            self.proved = True
        elif verdict.holds == snapshot_pb2.HOLDS_FALSE and proved:
            raise BreachError(f"FALSE while {sorted(self.stuck)} are stuck: {verdict.witness.text}")

    def has_incidents(self, epoch: int, incidents: Iterable[detector_pb2.Incident]) -> None:
        """All incidents, as listed by a call that began in ``epoch``."""
        if epoch != self.epoch or not self.proved:
            return
        ours = [each for each in incidents if {process_of(PartyName(party)) for party in each.core} == self.stuck]
        known = [each for each in ours if each.id == self.incident]
        if self.incident and (not known or known[0].HasField("closed")):
            raise BreachError(f"incident {self.incident} {known[0].ending if known else 'is gone'} while its deadlock stands")
        if not self.incident:
            self.incident = next((each.id for each in ours if not each.HasField("closed")), "")

    def lists(self, numbers: Iterable[int]) -> None:
        """Snapshots, as listed."""
        now = set(numbers)
        lost = sorted(number for number in self.listed if number not in now)
        if lost:
            raise BreachError(f"snapshots {lost[:10]} were listed and are not any more")
        self.listed = now
