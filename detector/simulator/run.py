"""One seeded run: steps a world, its faults and its detector at random to the end, brings it to rest, and checks it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from detector.core.predicate import Predicate
from detector.core.protocol.assembler import Outcome
from detector.simulator.checks import oracle, permutation
from detector.simulator.checks.oracle import View
from detector.simulator.plans import recipes
from detector.simulator.plans.plan import Limits, Plan
from detector.simulator.simulated_detector import SimulatedDetector, Tally
from detector.simulator.world.actions.faults import Faults
from detector.simulator.world.actions.handlers import HANDLERS
from detector.simulator.world.enabled_actions import Action, owner_of
from detector.simulator.world.engine import Engine
from detector.simulator.world.world import DOUBT_SECONDS, STEP_SECONDS, RecorderOf, World, plain_recorder
from stilltrue.model import Holds

TURNS_MAX_PER_PARTY = 20_000
"""Nested calls end, but six at each of four levels are 1,300 handlers for one task."""
THEOREM_EACH = 3
"""Theorem 1 is tested for one in this many seeds, since it costs as much as the run."""

THEOREM_SNAPSHOTS_MAX = 3

PROCESSES_AT_FULL_PACE = 8

WAKE_PROBABILITY = 0.05
"""Probability that a stalled process resumes at each of its turns."""

WORK = ("step", "deliver", "take", "expire")
ALL = (*WORK, "marker", "report", "hello")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run. ``breaches`` are sentences; empty if every promise was kept."""

    name: str
    seed: int
    breaches: tuple[str, ...]
    tally: Tally
    story: tuple[str, ...] = ()


class Run:
    """A world in progress."""

    def __init__(
        self,
        plan: Plan,
        *,
        recorder: RecorderOf = plain_recorder,
        predicates: Sequence[Predicate] | None = None,
        story: list[str] | None = None,
    ) -> None:
        self.plan = plan
        pace = min(1.0, PROCESSES_AT_FULL_PACE / len(plan.instances))  # slower steps let large worlds report in time
        self.world = World(plan, recorder=recorder, story=story, step_seconds=STEP_SECONDS * pace)
        self.engine = Engine(self.world, HANDLERS)
        self.watch = SimulatedDetector(self.engine, predicates=predicates)
        self.faults = Faults(self.world, self.watch)
        self.random = Random(plan.seed)
        self._turns_max = TURNS_MAX_PER_PARTY * (len(plan.instances) + len(plan.roots))
        self.world.enabled.add("tick", "tick")
        self.world.enabled.add("fault", "fault")
        if plan.asks:
            self.world.enabled.add("ask", "ask")

    def play(self) -> Result:
        """Step until the world is at rest and all questions are asked, or a promise is broken."""
        turns = 0
        while self.world.enabled.has(*WORK, "ask") and turns < self._turns_max and not self.world.breaches:
            turns += 1
            action = self._choose()
            if action is not None:
                self.do(action)
        if not self.world.breaches:
            self._close()
        if self._is_chosen() and not self.world.breaches and permutation.applies(self.plan):
            self._theorem()
        self.watch.tally.steps = len(self.world.log)
        return Result(
            name=self.plan.name,
            seed=self.plan.seed,
            breaches=tuple(self.world.breaches),
            tally=self.watch.tally,
            story=tuple(self.world.story or ()),
        )

    def _is_chosen(self) -> bool:
        """Whether theorem 1 is tested in this run; chosen so that worlds taken in turn get equal shares."""
        return (self.plan.seed + self.plan.seed // len(recipes.RECIPES)) % THEOREM_EACH == 0

    def _theorem(self) -> None:
        """Check theorem 1 for the last few snapshots that were taken while the world was moving."""
        for assembled, verdicts in self.watch.finished[:-2][-THEOREM_SNAPSHOTS_MAX:]:
            self.watch.tally.theorems += assembled.outcome is Outcome.COMPLETE
            certain = () if assembled.snapshot.ref.id in self.watch.in_doubt else verdicts
            for breach in permutation.check(self.world, assembled, certain):
                self.world.breach(breach)

    def do(self, action: Action) -> None:
        """Perform one action."""
        if action[0] == "fault":
            self.faults.strike(action)
        elif action[0] in {"ask", "trigger", "tick", "report", "looked", "hello", "cure"}:
            self.watch.do(action)
            if not self.watch.asks_left:
                self.world.enabled.discard("ask", "ask")
        else:
            self.engine.do(action)

    def _choose(self) -> Action | None:
        """Choose an action at random; None if the one drawn cannot happen now."""
        action = self.world.enabled.draw(self.random, self.plan.weights)
        if action is None:
            return None
        if action[0] == "fault":
            return self.faults.choose(self.random)
        if action[0] == "ask":
            names = sorted(self.world.processes)
            return action if self.random.random() < 0.5 or not names else ("trigger", self.random.choice(names))
        return self._concrete(action)

    def _concrete(self, action: Action) -> Action | None:
        options = self.world.concrete(action)
        if not options:
            return None
        action = options[int(self.random.random() * len(options))] if len(options) > 1 else options[0]
        process = self.world.processes.get(owner_of(action))
        if process is None or not process.stalled:
            return action
        process.stalled = self.random.random() > WAKE_PROBABILITY
        return None

    def _close(self) -> None:
        """Bring the world to rest, then ask twice: every property that holds must be reported now (live)."""
        for process in self.world.processes.values():
            process.stalled = False
        self._drain()
        self.world.now += DOUBT_SECONDS
        self.watch.forget_lost()
        for _ in range(2):
            self.watch.asks_left += 1
            self.do(("ask",))
            self._drain()
        if not self.world.breaches:
            self._live()

    def _drain(self) -> None:
        """Step until no party can move and no snapshot is in progress."""
        turns = 0
        while not self.world.breaches:
            turns += 1
            if turns > self._turns_max:
                self.world.breach("live: the world does not come to rest")
            action = self.world.enabled.draw(self.random, self.plan.weights, ALL)
            if action is not None:
                concrete = self._concrete(action)
                if concrete is not None:
                    self.do(concrete)
            elif self.watch.begun:
                self.do(("tick",))
            else:
                return

    def _live(self) -> None:
        """Check that the verdicts are the truth when the world is at rest and no member is missing."""
        world = self.world
        assembled, verdicts = self.watch.finished[-1]
        if assembled.snapshot.set_aside:
            return  # forged calls still make a member missing
        if assembled.outcome is not Outcome.COMPLETE:
            world.breach(f"live: the last snapshot, without any fault, is {assembled.outcome.value}")
        view = View(members=frozenset(self.watch.initiator.members), doubt=True)
        for verdict in verdicts:
            named = frozenset(name for name in verdict.remainder if "~" not in name)
            about = f"at rest, {verdict.predicate} {verdict.holds.value}"
            if verdict.holds is Holds.UNDETERMINED and (verdict.predicate == "deadlock" or self.plan.limits == Limits()):
                world.breach(f"live: {about}: {verdict.witness.text}")
            elif verdict.predicate == "deadlock" and not oracle.stuck(world, view) <= named <= oracle.stuck(world):
                world.breach(f"live: {about}: names {sorted(named)}, but {sorted(oracle.stuck(world, view))} are stuck")
            elif (
                verdict.predicate in {"termination", "phase-ended"}
                and verdict.holds is not Holds.UNDETERMINED
                and self.watch.initiator.members == tuple(sorted(world.processes))
                and ((verdict.holds is Holds.TRUE) != oracle.terminated(world))
            ):
                world.breach(f"live: {about}")


def play(name: str, seed: int, processes: int | None = None, *, story: bool = False) -> Result:
    """Run the world ``name`` with ``seed``; this one call replays a run."""
    return Run(recipes.plan(name, seed, processes), story=[] if story else None).play()
