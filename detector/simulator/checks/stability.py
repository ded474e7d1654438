"""Tests whether a predicate is stable: searches for a run in which it holds and later does not, and shrinks it.

Only one snapshot is in progress at a time, so each begins after the previous one has ended: a stable predicate that held in the
first must hold in the second. There are no faults from outside, but deadlines may fire, since they are part of the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from detector.core.predicate import Predicate
from detector.core.protocol.assembler import Outcome
from detector.simulator.diagram import Event
from detector.simulator.plans import recipes
from detector.simulator.plans.plan import Plan
from detector.simulator.run import Run
from stilltrue.model import Holds, Verdict

T = TypeVar("T")

SEEDS_PER_SHRINKING = 8
WORLDS = ("tokens", "pools", "fans", "locks", "deadlines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A run in which the predicate held in the snapshot ``held`` but not in the later one ``fell``."""

    plan: Plan
    held: Verdict
    fell: Verdict
    story: tuple[str, ...]
    events: tuple[Event, ...]


def check(
    make: Callable[[], Predicate], *, worlds: int = 500, progress: Callable[[int], None] = lambda _: None
) -> Counterexample | None:
    """The smallest run found in which the predicate is unstable; None if there is none in ``worlds`` seeded worlds.

    ``progress`` is called with the number of worlds tried.
    """
    for number, plan in enumerate(_plans(worlds), start=1):
        progress(number)
        if _fall(plan, make()) is not None:
            return _counterexample(_shrunk(plan, make), make())
    return None


def _plans(worlds: int) -> Iterator[Plan]:
    for seed in range(worlds):
        plan = recipes.plan(WORLDS[seed % len(WORLDS)], seed)
        yield replace(plan, pending_max=1, asks=6, faults={})


def _fall(plan: Plan, predicate: Predicate) -> tuple[Verdict, Verdict] | None:
    """Run ``plan``; the TRUE and the later FALSE of the predicate, or None."""
    run = Run(plan, predicates=[predicate])
    run.play()
    return _first_fall(run)


def _first_fall(run: Run) -> tuple[Verdict, Verdict] | None:
    held: Verdict | None = None
    for assembled, verdicts in run.watch.finished:
        for verdict in verdicts:
            if verdict.holds is Holds.TRUE and held is None:
                held = verdict
            elif verdict.holds is Holds.FALSE and held is not None and assembled.outcome is Outcome.COMPLETE:
                return held, verdict
    return None


def _shrunk(plan: Plan, make: Callable[[], Predicate]) -> Plan:
    """Remove root tasks, snapshots and operations as long as the predicate still falls under some seed."""
    while True:
        tried = (replace(one, seed=seed) for one in _smaller(plan) for seed in range(SEEDS_PER_SHRINKING))
        smaller = next((one for one in tried if _fall(one, make()) is not None), None)
        if smaller is None:
            return plan
        plan = smaller


def _smaller(plan: Plan) -> Iterator[Plan]:
    for at in range(len(plan.roots)):
        yield replace(plan, roots=_without(plan.roots, at))
    if plan.asks > 2:
        yield replace(plan, asks=plan.asks - 1)
    if plan.depth > 1:
        yield replace(plan, depth=plan.depth - 1)
    for at, (process, body) in enumerate(plan.roots):
        for step in range(len(body)):
            shorter = (process, _without(body, step))
            yield replace(plan, roots=(*plan.roots[:at], shorter, *plan.roots[at + 1 :]))
    used = {process for process, _ in plan.roots}
    for name in plan.instances:
        service = plan.instances[name]
        if name not in used and sum(other == service for other in plan.instances.values()) > 1:
            yield replace(plan, instances={other: plan.instances[other] for other in plan.instances if other != name})


def _without(items: Sequence[T], at: int) -> tuple[T, ...]:
    return (*items[:at], *items[at + 1 :])


def _counterexample(plan: Plan, predicate: Predicate) -> Counterexample:
    run = Run(plan, predicates=[predicate], story=[])
    result = run.play()
    fall = _first_fall(run)
    assert fall is not None, "the same plan gives the same run"
    return Counterexample(plan=plan, held=fall[0], fell=fall[1], story=result.story, events=tuple(run.world.events))
