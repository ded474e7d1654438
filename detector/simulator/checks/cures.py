"""Cures in a world: an operator has a deadlock's victims aborted, as the service would, and the oracle says what came of it.

Rules:

1. Aborting all victims of a verdict frees all whom it names.
2. The preview is exact: when the victims have been let go, those who are still stuck are those whom it does not free.
3. A party that the preview does not free never moves. This is checked at each of its steps from then on.
4. A victim that has gone on since is not touched, though the request for it may come late, or twice.
5. No lock is taken away: those alone that are cancelled give back what they hold.
6. What is said afterwards is held to every promise, as anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from detector.core.incident_identity import Core, cores_of
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.snapshot import Snapshot
from detector.predicates.evidence import freed
from detector.simulator.checks import oracle
from detector.simulator.world.aborted import aborts, is_task
from detector.simulator.world.state import Lock, Party, Process
from detector.simulator.world.world import World
from stilltrue.model import Holds, PartyName, ProcessName, SnapshotId, Verdict, WaitNumber, process_of
from stilltrue.protocol.requests.look import LookRequest, Suspect

Names = frozenset[PartyName]
Stand = tuple[Party, int, int]
"""A party, and how far it is in its program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the newest verdict of a deadlock names, and the waits by which its victims are known."""

    remainder: Names
    cores: dict[tuple[PartyName, ...], Core]
    snapshot: Snapshot
    outside: int
    """How many acts from outside came before it began."""
    whole: bool
    """Every member has reported, and no wait is in doubt: then the remainder is exact."""


@dataclass(slots=True, kw_only=True)
class _Cure:
    """One cure under way."""

    victims: Names
    asked: dict[ProcessName, list[Suspect]]
    freed: Names
    kept: Names
    remainder: Names
    stood: dict[PartyName, Stand]
    exact: bool
    outside: int
    events: int | None = None
    """How much had happened when its first request arrived."""
    let_go: set[PartyName] = field(default_factory=set)


class Cures:
    """The cures of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._newest: _Known | None = None
        self._under_way: dict[int, _Cure] = {}

    @property
    def known(self) -> list[tuple[PartyName, ...]]:
        """The victims of each deadlock that the newest verdict names."""
        return [] if self._newest is None else sorted(self._newest.cores)

    def said(self, assembled: Assembled, verdicts: tuple[Verdict, ...], outside: int) -> None:
        """Verdicts are said; ``outside``: how many acts from outside came before their snapshot began. Rule 1."""
        verdict = next((one for one in verdicts if one.predicate == "deadlock"), None)
        if verdict is None or verdict.holds is not Holds.TRUE or not verdict.victims:
            self._newest = None
            return
        snapshot = assembled.snapshot
        left = {*verdict.remainder} - {*verdict.victims} - {*freed.freed_by(snapshot, verdict.victims)}
        if left:
            self._world.breach(f"cure: snapshot {snapshot.ref.id}: all victims aborted, {_names(left)} would be stuck still")
        runs = {name: report.process.incarnation for name, report in assembled.reports.items()}
        waits = snapshot.waits
        cores = cores_of(verdict.core, waits, lambda wait: runs.get(process_of(waits.names[waits.waiter[wait]]), 0))
        victims = {tuple(one for one in verdict.victims if one in core.parties): core for core in cores}
        self._newest = _Known(
            remainder=frozenset(verdict.remainder),
            cores={named: core for named, core in victims.items() if named},
            snapshot=snapshot,
            outside=outside,
            whole=assembled.outcome is Outcome.COMPLETE and not snapshot.missing and not waits.uncoloured.any(),
        )

    def begins(self, victims: tuple[PartyName, ...]) -> None:
        """An operator has seen the preview, and goes on: each victim's process is asked."""
        world, newest = self._world, self._newest
        assert newest is not None
        core, number = newest.cores[victims], len(self._under_way) + 1
        freed_ones = frozenset(freed.freed_by(newest.snapshot, victims))
        suspects: dict[ProcessName, list[Suspect]] = {}
        for victim in victims:
            numbers = tuple(WaitNumber(wait) for name, _, wait in core.keys if name == victim)
            suspects.setdefault(process_of(victim), []).append(Suspect(party=victim, waits=numbers))
        stuck = oracle.stuck(world)
        parties = {who.name: who for process in world.processes.values() for who in process.parties.values()}
        self._under_way[number] = _Cure(
            victims=frozenset(victims),
            asked=suspects,
            freed=freed_ones,
            kept=newest.remainder - freed_ones - {*victims},
            remainder=newest.remainder,
            stood={name: (parties[name], parties[name].at, parties[name].step) for name in victims if name in stuck},
            exact=newest.whole,
            outside=newest.outside,
        )
        for name in suspects:
            process = world.processes.get(name)
            if process is not None:
                world.enabled.add("marker", "cure", number, name, process.id.incarnation)

    def arrives(self, number: int, name: ProcessName) -> bool:
        """The requests of a cure arrive: all at once, or, of each other cure, at one process.

        Whether what came of it was compared with its preview.
        """
        world, cure = self._world, self._under_way[number]
        if cure.events is None:
            cure.events = len(world.log)
        for one in [name] if number % 2 else sorted(cure.asked):
            process = world.processes.get(one)
            if process is not None:
                world.enabled.discard("marker", "cure", number, one, process.id.incarnation)
            suspects = cure.asked.pop(one, [])
            if process is not None and suspects:
                self._at(process, cure, suspects)
        return not cure.asked and self._compare(cure)

    def _at(self, process: Process, cure: _Cure, suspects: list[Suspect]) -> None:
        """One process's agent aborts its victims."""
        world = self._world
        if cure.outside != world.outside:  # another cure came first: more go on than this one frees
            cure.exact, cure.kept = False, frozenset()
        world.frozen = {party: why for party, why in world.frozen.items() if party in cure.kept}
        request = LookRequest(snapshot=SnapshotId(0), suspects=tuple(suspects))
        seen = process.recorder.look(request, process.at(world.now)).parties
        cure.let_go |= {one.party for one in seen if one.unchanged and self._abort(process, one.party, cure)}
        world.outside += 1
        cure.outside = world.outside

    def _abort(self, process: Process, name: PartyName, cure: _Cure) -> bool:
        """Rules 4 and 5; whether the victim was let go."""
        world, who, stood = self._world, process.parties.get(name), cure.stood.get(name)
        if who is None or stood is None:
            return False
        if stood != (who, who.at, who.step):
            world.breach(f"cure: {name} has gone on since, and is aborted")
        if who.block is None:
            return False  # what it waited for has come in this instant
        held = {lock: list(lock.holders) for lock in world.locks.values()}
        done = aborts(world, who)
        cancelled = {who} if is_task(who) else set()
        for lock, holders in held.items():
            self._keeps(lock, [one for one in holders if one not in cancelled])
        return done

    def _keeps(self, lock: Lock, holders: list[Party]) -> None:
        """Rule 5."""
        robbed = [one.name for one in holders if one not in lock.holders]
        if robbed or len(lock.holders) > lock.capacity:
            self._world.breach(f"cure: {lock.name} is taken away from {_names(robbed)}")

    def _compare(self, cure: _Cure) -> bool:
        """Rule 2, if all victims were let go and nothing happened in between: as if all others could move."""
        world = self._world
        if not cure.exact or cure.let_go != cure.victims or cure.events != len(world.log):
            return False
        still = oracle.stuck(world, only=cure.remainder)
        if wrong := cure.freed & still:
            world.breach(f"cure: {_names(wrong)} would go on, says the preview, and cannot")
        if wrong := cure.kept - still:
            world.breach(f"cure: {_names(wrong)} can go on, and the preview does not say so")
        return True


def _names(parties: Iterable[PartyName]) -> str:
    return ", ".join(sorted(parties)) or "nobody"
