"""Performs cures in a world: an operator aborts a deadlock's victims, as the service would, and the oracle checks the effect.

Rules:

1. Aborting all victims of a verdict frees all parties that it names.
2. The preview is exact: once the victims are unblocked, the parties still stuck are exactly those that it does not free. Only
   handlers that are cancelled along with a victim's own calls are not named: a snapshot does not say whose calls they serve.
3. A party that the preview does not free never moves. This is checked at each of its later steps.
4. A victim that has moved on since is not touched, even if the request for it is late or duplicated.
5. No lock is taken away: only cancelled parties release what they hold.
6. Later verdicts must keep every promise, as always.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from detector.core.incident_identity import Core, cores_of
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.snapshot import Snapshot
from detector.predicates.evidence import freed_by_abort
from detector.simulator.checks import oracle
from detector.simulator.world.actions.aborting import abort_victim, is_task
from detector.simulator.world.state import Lock, Party, Process
from detector.simulator.world.world import World
from stilltrue.model import Holds, PartyName, ProcessName, SnapshotId, Verdict, WaitNumber, process_of
from stilltrue.protocol.requests.look import LookRequest, Suspect

Names = frozenset[PartyName]
Position = tuple[Party, int, int]
"""A party and its position in its program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The parties that the newest deadlock verdict names, and the waits that identify its victims."""

    remainder: Names
    cores: dict[tuple[PartyName, ...], Core]
    snapshot: Snapshot
    outside: int
    """Number of interventions before its snapshot began."""
    exact: bool
    """Whether the remainder is exact: every member has reported, and no wait is in doubt."""


@dataclass(slots=True, kw_only=True)
class _Cure:
    """One cure in progress. ``kept``: parties of the remainder that it does not free."""

    victims: Names
    requests: dict[ProcessName, list[Suspect]]
    freed: Names
    kept: Names
    remainder: Names
    positions: dict[PartyName, Position]
    exact: bool
    outside: int
    events: int | None = None
    """Length of the world's log when the first request arrived."""
    unblocked: set[PartyName] = field(default_factory=set)


class Cures:
    """The cures of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._newest: _Known | None = None
        self._in_progress: dict[int, _Cure] = {}

    @property
    def known(self) -> list[tuple[PartyName, ...]]:
        """The victims of each deadlock that the newest verdict names."""
        return [] if self._newest is None else sorted(self._newest.cores)

    def judged(self, assembled: Assembled, verdicts: tuple[Verdict, ...], outside: int) -> None:
        """Take note of new verdicts, and check rule 1. ``outside``: number of interventions before their snapshot began."""
        verdict = next((one for one in verdicts if one.predicate == "deadlock"), None)
        if verdict is None or verdict.holds is not Holds.TRUE or not verdict.victims:
            self._newest = None
            return
        snapshot = assembled.snapshot
        left = {*verdict.remainder} - {*verdict.victims} - {*freed_by_abort.freed_by(snapshot, verdict.victims)}
        if left:
            self._world.breach(f"cure: snapshot {snapshot.ref.id}: with all victims aborted, {_names(left)} would stay stuck")
        incarnations = {name: report.process.incarnation for name, report in assembled.reports.items()}
        waits = snapshot.waits
        cores = cores_of(verdict.core, waits, lambda wait: incarnations.get(process_of(waits.names[waits.waiter[wait]]), 0))
        victims = {tuple(one for one in verdict.victims if one in core.parties): core for core in cores}
        self._newest = _Known(
            remainder=frozenset(verdict.remainder),
            cores={named: core for named, core in victims.items() if named},
            snapshot=snapshot,
            outside=outside,
            exact=assembled.outcome is Outcome.COMPLETE and not snapshot.missing and not waits.uncoloured.any(),
        )

    def begin(self, victims: tuple[PartyName, ...]) -> None:
        """An operator has seen the preview and confirms: send a request to each victim's process."""
        world, newest = self._world, self._newest
        assert newest is not None
        core, number = newest.cores[victims], len(self._in_progress) + 1
        freed_parties = frozenset(freed_by_abort.freed_by(newest.snapshot, victims))
        suspects: dict[ProcessName, list[Suspect]] = {}
        for victim in victims:
            numbers = tuple(WaitNumber(wait) for name, _, wait in core.keys if name == victim)
            suspects.setdefault(process_of(victim), []).append(Suspect(party=victim, waits=numbers))
        stuck = oracle.stuck(world)
        parties = {who.name: who for process in world.processes.values() for who in process.parties.values()}
        cancelled = _cancelled_with([parties[name] for name in victims if name in parties])
        self._in_progress[number] = _Cure(
            victims=frozenset(victims),
            requests=suspects,
            freed=freed_parties,
            kept=newest.remainder - freed_parties - {*victims} - cancelled,
            remainder=newest.remainder,
            positions={name: (parties[name], parties[name].at, parties[name].step) for name in victims if name in stuck},
            exact=newest.exact,
            outside=newest.outside,
        )
        for name in suspects:
            process = world.processes.get(name)
            if process is not None:
                world.enabled.add("marker", "cure", number, name, process.id.incarnation)

    def deliver(self, number: int, name: ProcessName) -> bool:
        """The requests of a cure arrive: in every other cure at all processes at once, otherwise at this one.

        Returns whether the effect was compared with the preview.
        """
        world, cure = self._world, self._in_progress[number]
        if cure.events is None:
            cure.events = len(world.log)
        for one in [name] if number % 2 else sorted(cure.requests):
            process = world.processes.get(one)
            if process is not None:
                world.enabled.discard("marker", "cure", number, one, process.id.incarnation)
            suspects = cure.requests.pop(one, [])
            if process is not None and suspects:
                self._abort_at(process, cure, suspects)
        return not cure.requests and self._compare(cure)

    def _abort_at(self, process: Process, cure: _Cure, suspects: list[Suspect]) -> None:
        """The agent of one process aborts its victims."""
        world = self._world
        if cure.outside != world.outside:  # another cure came first, so more parties may move than this one frees
            cure.exact, cure.kept = False, frozenset()
        world.frozen = {party: why for party, why in world.frozen.items() if party in cure.kept}
        request = LookRequest(snapshot=SnapshotId(0), suspects=tuple(suspects))
        seen = process.recorder.look(request, process.at(world.now)).parties
        cure.unblocked |= {one.party for one in seen if one.unchanged and self._abort(process, one.party, cure)}
        world.outside += 1
        cure.outside = world.outside

    def _abort(self, process: Process, name: PartyName, cure: _Cure) -> bool:
        """Abort a victim and check rules 4 and 5; returns whether it was unblocked."""
        world, who, position = self._world, process.parties.get(name), cure.positions.get(name)
        if who is None or position is None:
            return False
        if position != (who, who.at, who.step):
            world.breach(f"cure: {name} is aborted although it has moved on")
        if who.block is None:
            return False  # its wait has just ended
        held = {lock: list(lock.holders) for lock in world.locks.values()}
        done = abort_victim(world, who)
        cancelled = {who} if is_task(who) else set()
        for lock, holders in held.items():
            self._check_holders(lock, [one for one in holders if one not in cancelled])
        return done

    def _check_holders(self, lock: Lock, holders: list[Party]) -> None:
        """Check rule 5: ``holders`` still hold the lock."""
        robbed = [one.name for one in holders if one not in lock.holders]
        if robbed or len(lock.holders) > lock.capacity:
            self._world.breach(f"cure: {lock.name} is taken away from {_names(robbed)}")

    def _compare(self, cure: _Cure) -> bool:
        """Check rule 2, if all victims were unblocked and nothing happened in between. Other parties count as able to move."""
        world = self._world
        if not cure.exact or cure.unblocked != cure.victims or cure.events != len(world.log):
            return False
        still = oracle.stuck(world, only=cure.remainder)
        if wrong := cure.freed & still:
            world.breach(f"cure: the preview frees {_names(wrong)}, which cannot move")
        if wrong := cure.kept - still:
            world.breach(f"cure: the preview does not free {_names(wrong)}, which can move")
        return True


def _cancelled_with(victims: Iterable[Party]) -> Names:
    """The handlers that are cancelled when the calls of ``victims`` are, and those of their own calls in turn."""
    found: set[Party] = set()
    todo = [*victims]
    while todo:
        handlers = {
            who for call in todo.pop().sent for who in call.served if who.method is not None and who.method.interruptible
        }
        todo += handlers - found
        found |= handlers
    return frozenset(who.name for who in found)


def _names(parties: Iterable[PartyName]) -> str:
    return ", ".join(sorted(parties)) or "none"
