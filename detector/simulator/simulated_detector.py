"""The detector of a world: runs the real initiator, verifier and predicates, and checks the promises for each verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from detector.core.predicate import Predicate, reads_activity
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.protocol.initiator import Begin, Effect, Finish, Initiator
from detector.core.protocol.pace import Timing
from detector.core.registry import ask, depends_on_idleness
from detector.core.scope import scoped
from detector.core.snapshot import Snapshot
from detector.core.verification.suspicion import Suspicion, suspicion_of
from detector.core.verification.verifier import AskLook, Interim, RoundEffect, Verified, Verifier
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.lost_message import LostMessage
from detector.predicates.phase_ended import PhaseEnded
from detector.predicates.quiescence import Quiescence
from detector.predicates.termination import Termination
from detector.predicates.token import TokenDuplicated, TokenLost
from detector.simulator.checks.cures import Cures
from detector.simulator.checks.promises import Instant, check_group, check_interim, check_promises, instant
from detector.simulator.plans.plan import Fault, Plan
from detector.simulator.world.enabled_actions import Action
from detector.simulator.world.engine import Engine
from detector.simulator.world.world import PHASE
from stilltrue.model import Holds, PartyName, ProcessName, SnapshotId, Verdict

GIVE_UP_SECONDS = 1.0
LOOK_AGAIN_SECONDS_MIN = 0.05


def built_in(plan: Plan) -> tuple[Predicate, ...]:
    """The predicates that are meaningful for the world."""
    found: list[Predicate] = [Deadlock(), Termination(), Quiescence()]
    if plan.has_deadlines():
        found.append(Gridlock())
    if plan.tokens:
        expected = sum(plan.tokens.values())
        found += [TokenLost(expected=expected), TokenDuplicated(expected=expected)]
    if plan.counted:
        found += [LostMessage(), PhaseEnded(phase=PHASE)]
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of one run."""

    steps: int = 0
    snapshots: int = 0
    incomplete: int = 0
    theorems: int = 0
    early: int = 0
    """Number of interim verdicts, given during a verification round."""
    cures: int = 0
    """Number of cures whose effect could be compared with their preview."""
    verdicts: dict[str, dict[Holds, int]] = field(default_factory=dict)


class SimulatedDetector:
    """Begins snapshots, receives reports, evaluates the predicates, and checks the verdicts."""

    def __init__(self, engine: Engine, *, predicates: Sequence[Predicate] | None = None) -> None:
        """``predicates``: the built-in ones by default."""
        self._engine = engine
        self.world = world = engine.world
        self.predicates = tuple(predicates) if predicates is not None else built_in(world.plan)
        self.initiator = self._initiator()
        self.verifier = self._verifier()
        self.begun: dict[SnapshotId, Instant] = {}
        self._ended: dict[SnapshotId, tuple[Assembled, Instant]] = {}
        """Snapshots whose verification round is in progress, each with the truth when it ended."""
        self._outside_before = 0
        self.finished: list[tuple[Assembled, tuple[Verdict, ...]]] = []
        self.in_doubt: set[SnapshotId] = set()
        """Snapshots with unverified suspects: their verdicts may name only a part of the stuck parties."""
        self.tally = Tally()
        self._cures = Cures(world)
        self.asks_left = world.plan.asks
        self.checking = True
        """Whether verdicts are checked; not in a part of the run that is only replayed."""
        for name in sorted(world.processes):
            self.join(name)

    def _initiator(self, *, first: SnapshotId = SnapshotId(1)) -> Initiator:
        timing = Timing(
            period_seconds=0,
            give_up_seconds=GIVE_UP_SECONDS,
            suspect_seconds=GIVE_UP_SECONDS / 4,
            pending_snapshots_max=self.world.plan.pending_max,
        )
        return Initiator(timing, first=first)

    def _verifier(self) -> Verifier:
        return Verifier(give_up_seconds=GIVE_UP_SECONDS, again_seconds_min=LOOK_AGAIN_SECONDS_MIN)

    def do(self, action: Action) -> None:
        """Perform one of the detector's own actions."""
        self.world.now += self.world.step_seconds / 10
        now = self.world.now
        match action:
            case ("ask",):
                self.asks_left -= 1
                self._apply(self.initiator.asked(self.asks_left, now))
            case ("trigger", name):
                self.asks_left -= 1
                self._apply(self.initiator.requested(name, now))
            case ("tick",):
                due = min(self.initiator.due(now), self.verifier.due(), self.verifier.interim_due(), now + GIVE_UP_SECONDS)
                self.world.now = now = max(now, due)
                self._apply(self.initiator.ticked(now))
                self._verify(self.verifier.ticked(now))
                self._verify(self.verifier.interim(now))
            case ("hello", name, incarnation):
                self.world.enabled.discard("hello", *action)
                if self.world.alive(name, incarnation) is not None:
                    self.join(name)
            case ("report", *_):
                self.world.enabled.discard("report", *action)
                self._apply(self.initiator.reported(self.world.reports.pop(action), now))
            case ("looked", *_):
                self.world.enabled.discard("report", *action)
                process, look = self.world.looks.pop(action)
                self._verify(self.verifier.looked(process, look, now))
            case ("cure", number, name, _):
                self.tally.cures += self._cures.deliver(number, name)
            case _:
                raise AssertionError(action)

    def join(self, name: ProcessName) -> None:
        """A process connects, if it has an agent."""
        process = self.world.processes[name]
        if not process.instrumented:
            return
        self.world.departed.discard(name)
        self._apply(self.initiator.joined(process.id, process.recorder.colour, self.world.now))

    def leave(self, name: ProcessName) -> None:
        """A process has left with a goodbye, or is forgotten."""
        if name in self.world.processes:
            self.world.departed.add(name)
        self._apply(self.initiator.left(name, self.world.now))
        self._verify(self.verifier.unable(name, f"{name} has left", self.world.now))

    def lose(self, name: ProcessName) -> None:
        """A process's stream to the detector has broken; if the process still exists, it reconnects."""
        self._apply(self.initiator.lost(name, self.world.now))
        self._verify(self.verifier.unable(name, f"the stream of {name} broke", self.world.now))
        process = self.world.processes.get(name)
        if process is not None and process.instrumented:
            self.world.enabled.add("hello", "hello", name, process.id.incarnation)

    def curable(self) -> list[tuple[PartyName, ...]]:
        """The victims of each deadlock that the newest verdict names."""
        return self._cures.known

    def cure(self, victims: tuple[PartyName, ...]) -> None:
        """An operator requests the abort of these victims of one deadlock."""
        self._cures.begin(victims)

    def forget_lost(self) -> None:
        """Forget members that no longer exist."""
        for name in self.initiator.members:
            if name not in self.world.processes:
                self.leave(name)

    def restart(self) -> None:
        """The detector restarts. It knows the ids it has assigned and its members, which are lost until they reconnect."""
        now, before = self.world.now, self.initiator
        self.initiator = self._initiator(first=before.next_id)
        self.verifier = self._verifier()
        self.begun.clear()
        self._ended.clear()
        for name in before.members:
            process = self.world.processes.get(name)
            if process is not None:
                self._apply(self.initiator.joined(process.id, SnapshotId(0), now))
                self._apply(self.initiator.lost(name, now))
        for process in self.world.processes.values():
            if process.instrumented:
                self.world.enabled.add("hello", "hello", process.name, process.id.incarnation)

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Begin():
                    self._begin(effect)
                case Finish(assembled=assembled):
                    self._finish(assembled)

    def _begin(self, begin: Begin) -> None:
        world, snapshot, members = self.world, begin.snapshot, begin.members
        self._engine.notice_losses()
        self.begun[snapshot] = instant(world, frozenset(members), outside_before=self._outside_before)
        if world.story is not None:
            world.story.append(f"{world.now:7.2f}  {'detector':<10} begins snapshot {snapshot} of {', '.join(members)}")
        for name in members:
            process = world.processes.get(name)
            if process is None or ("hello", name, process.id.incarnation) in world.enabled.bags["hello"]:
                continue  # lost: the marker cannot reach it
            incarnation = process.id.incarnation
            world.enabled.add("marker", "marker", snapshot, name, incarnation)
            if name in begin.settled:
                world.enabled.add("marker", "settles", snapshot, name, incarnation, begin.settled[name])

    def _finish(self, assembled: Assembled) -> None:
        world, tally = self.world, self.tally
        snapshot = assembled.snapshot.ref.id
        assert snapshot is not None
        tally.snapshots += 1
        tally.incomplete += assembled.outcome is Outcome.INCOMPLETE
        self._ended[snapshot] = (assembled, instant(world, self.begun[snapshot].members))
        expected = self._to_set_aside(assembled)
        if expected != assembled.snapshot.set_aside.keys():
            self._conclude(assembled)
            found, due = (", ".join(sorted(names)) or "none" for names in (assembled.snapshot.set_aside, expected))
            why = "; ".join(assembled.orphans)
            world.breach(f"orphans: snapshot {snapshot}: reports set aside: {found}, expected: {due}: {why}")
            return
        suspicion = self._suspicion(assembled.snapshot)
        if suspicion:
            self._verify(self.verifier.suspected(assembled, suspicion, world.now))
        else:
            self._conclude(assembled)

    def _to_set_aside(self, assembled: Assembled) -> set[ProcessName]:
        """The members whose reports contradict others because of forged calls."""
        if not self.world.plan.forgers:
            return set()
        absent = {member.instance for member in assembled.absent} - assembled.snapshot.set_aside.keys()
        snapshot = assembled.snapshot.ref.id or SnapshotId(0)
        processes = self.world.processes
        members = {
            (name, processes[name].id.incarnation) for name in self.begun[snapshot].members - absent if name in processes
        }
        return self.world.forgeries.set_aside(snapshot, members)

    def _suspicion(self, snapshot: Snapshot) -> Suspicion:
        idle = suspicion_of(snapshot, with_idle=True).processes
        with_idle = any(
            depends_on_idleness(predicate, snapshot, ask(predicate, snapshot), idle)
            for predicate in self.predicates
            if idle and reads_activity(predicate)
        )
        return suspicion_of(snapshot, with_idle=with_idle)

    def _verify(self, effects: Sequence[RoundEffect]) -> None:
        world = self.world
        for effect in effects:
            match effect:
                case AskLook(process=process, request=request):
                    world.enabled.add("marker", "look", request, process.instance, process.incarnation)
                case Interim(assembled=assembled, certain=certain):
                    if certain:
                        self._check_interim(assembled)
                case Verified(assembled=assembled):
                    self._conclude(assembled)

    def _check_interim(self, assembled: Assembled) -> None:
        """Check the deadlock and gridlock of an interim result, while the round continues."""
        snapshot = assembled.snapshot.ref.id
        assert snapshot is not None
        if self.checking and not assembled.orphans:
            self.tally.early += 1
            raw, ended = self._ended[snapshot]
            ended = replace(ended, outside=self.world.outside)
            verdicts = (ask(predicate, assembled.snapshot) for predicate in (Deadlock(), Gridlock()))
            check_interim(self.world, assembled, *verdicts, raw=raw, begun=self.begun[snapshot], ended=ended)

    def _conclude(self, assembled: Assembled) -> None:
        """Evaluate and check the verdicts; the verification round is over, or there was nothing to verify."""
        world, tally = self.world, self.tally
        snapshot = assembled.snapshot.ref.id
        assert snapshot is not None
        begun, (raw, ended) = self.begun.pop(snapshot), self._ended.pop(snapshot)
        world.network.snapshot_ended()
        self._outside_before = world.outside
        if not self.checking or (assembled.orphans and not world.plan.forgers):  # already a breach
            return
        verdicts = tuple(ask(predicate, assembled.snapshot) for predicate in self.predicates)
        for verdict in verdicts:
            counts = tally.verdicts.setdefault(verdict.predicate, dict.fromkeys(Holds, 0))
            counts[verdict.holds] += 1
            if world.story is not None:
                text = f"{verdict.predicate} {verdict.holds.value}: {verdict.witness.text}"
                world.story.append(f"{world.now:7.2f}  {'detector':<10} snapshot {snapshot} has ended: {text}")
        self.finished.append((raw, verdicts))
        if assembled.snapshot.waits.uncoloured.any():
            self.in_doubt.add(snapshot)
        if Fault.CURE in world.plan.faults:
            self._cures.judged(assembled, verdicts, begun.outside)
        ended = replace(ended, outside=world.outside)
        check_promises(world, assembled, verdicts, raw=raw, begun=begun, ended=ended)
        if world.plan.scope:
            group = scoped(assembled.snapshot, world.plan.scope, {"service": world.plan.scope})
            check_group(world, assembled, ask(Deadlock(), group), begun=begun, ended=ended)
