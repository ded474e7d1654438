"""Forged stamps: strangers that call under a member's name, and the world's own book of who can have believed what.

A forged number or floor is far beyond what its alleged caller has sent, so that the reports of the two contradict each other
(rule 5). What bears an unknown incarnation, or a colour that no detector can have given, contradicts nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

from detector.simulator.world.state import CallKey, Process
from stilltrue.model import CallNumber, ProcessName, SnapshotId
from stilltrue.protocol.stamp import Stamp

FAR = 10**6
UNKNOWN_INCARNATION = 999
COLOUR = SnapshotId(10**12)

Victim = tuple[ProcessName, int]


def forged(processes: Mapping[ProcessName, Process], seed: int, key: CallKey) -> Stamp | None:
    """The stamp that a forger puts on its call: always the same for the same call."""
    random = Random(f"{seed} {key}")
    members = [process for _, process in sorted(processes.items()) if process.instrumented]
    if not members or random.random() < 0.3:
        return None
    victim = random.choice(members).id
    number, floor, colour = CallNumber(FAR + key[2]), CallNumber(0), SnapshotId(0)
    match random.randrange(4):
        case 0:
            return Stamp(victim.instance, UNKNOWN_INCARNATION, number, colour, floor)
        case 1:
            return Stamp(victim.instance, victim.incarnation, CallNumber(0), colour, CallNumber(FAR))
        case 2:
            colour = COLOUR
    return Stamp(victim.instance, victim.incarnation, number, colour, floor)


class Book:
    """What each process has been told under a false name, by the cuts that it has made since."""

    def __init__(self) -> None:
        self._told: dict[Victim, set[Victim]] = {}
        self._cuts: dict[ProcessName, list[tuple[SnapshotId, SnapshotId, frozenset[Victim]]]] = {}

    def arrived(self, process: Process, stamp: Stamp | None) -> None:
        """A request with a forged stamp has arrived."""
        if stamp is not None and stamp.incarnation != UNKNOWN_INCARNATION and max(stamp.number, stamp.floor) >= FAR:
            told = self._told.setdefault((process.name, process.id.incarnation), set())
            told.add((stamp.source, stamp.incarnation))

    def cut(self, process: Process, after: SnapshotId, snapshot: SnapshotId) -> None:
        """A process has cut for every snapshot in (``after``, ``snapshot``]."""
        told = frozenset(self._told.get((process.name, process.id.incarnation), ()))
        self._cuts.setdefault(process.name, []).append((after, snapshot, told))

    def set_aside(self, snapshot: SnapshotId, members: Collection[Victim]) -> set[ProcessName]:
        """Whose reports have to go: while two contradict each other the most contradicted one, of two the believer's."""
        pairs = {(name, victim[0]) for name, _ in members for victim in self._told_at(name, snapshot) if victim in members}
        gone: set[ProcessName] = set()
        while pairs:
            times = Counter(name for pair in pairs for name in set(pair))
            believers = {server for server, _ in pairs}
            worst = sorted(times, key=lambda name: (-times[name], name not in believers, name))[0]
            gone.add(worst)
            pairs = {pair for pair in pairs if worst not in pair}
        return gone

    def _told_at(self, name: ProcessName, snapshot: SnapshotId) -> frozenset[Victim]:
        cuts = self._cuts.get(name, [])
        return next((told for after, until, told in cuts if after < snapshot <= until), frozenset())
