"""Forged stamps, with which strangers call under a member's name, and the world's record of which process received which.

A forged number or floor is far beyond what the alleged caller has sent, so that the reports of caller and server contradict
each other (protocol rule 5). A stamp with an unknown incarnation, or a colour that no detector can have assigned, contradicts
no report.
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
    """The stamp that a forger puts on its call; always the same for the same call."""
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


class ForgeryLog:
    """Records which members' names were forged towards each process, as of each of its cuts."""

    def __init__(self) -> None:
        self._victims: dict[Victim, set[Victim]] = {}
        self._cuts: dict[ProcessName, list[tuple[SnapshotId, SnapshotId, frozenset[Victim]]]] = {}

    def arrived(self, process: Process, stamp: Stamp | None) -> None:
        """A request with a forged stamp has arrived."""
        if stamp is not None and stamp.incarnation != UNKNOWN_INCARNATION and max(stamp.number, stamp.floor) >= FAR:
            victims = self._victims.setdefault((process.name, process.id.incarnation), set())
            victims.add((stamp.source, stamp.incarnation))

    def cut(self, process: Process, after: SnapshotId, snapshot: SnapshotId) -> None:
        """A process has cut for every snapshot in (``after``, ``snapshot``]."""
        victims = frozenset(self._victims.get((process.name, process.id.incarnation), ()))
        self._cuts.setdefault(process.name, []).append((after, snapshot, victims))

    def set_aside(self, snapshot: SnapshotId, members: Collection[Victim]) -> set[ProcessName]:
        """The members whose reports must be set aside: always the most contradicted one; in a tie, the deceived server."""
        pairs = {(name, victim[0]) for name, _ in members for victim in self._victims_at(name, snapshot) if victim in members}
        gone: set[ProcessName] = set()
        while pairs:
            times = Counter(name for pair in pairs for name in set(pair))
            servers = {server for server, _ in pairs}
            worst = sorted(times, key=lambda name: (-times[name], name not in servers, name))[0]
            gone.add(worst)
            pairs = {pair for pair in pairs if worst not in pair}
        return gone

    def _victims_at(self, name: ProcessName, snapshot: SnapshotId) -> frozenset[Victim]:
        cuts = self._cuts.get(name, [])
        return next((victims for after, until, victims in cuts if after < snapshot <= until), frozenset())
