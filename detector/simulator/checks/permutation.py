"""Tests theorem 1: a run replayed with the events before the cuts first must pass through the recorded state.

Chandy and Lamport 1985, section 4.1: the recorded state S* is reachable from the state in which the snapshot began, and the
state in which it ended is reachable from S*, though S* may never have occurred. This module builds the permutation and replays
it in a fresh world without a detector: every process must cut the same report as in the run, the oracle must find in S* exactly
the remainder that the verdict names, and the run must end in the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from detector.core.protocol.assembler import Assembled, Outcome
from detector.simulator.checks import oracle
from detector.simulator.checks.oracle import KNOWABLE
from detector.simulator.plans.plan import Acquire, Limits, Open, Plan
from detector.simulator.world.actions.handlers import HANDLERS
from detector.simulator.world.engine import Engine
from detector.simulator.world.world import Entry, World
from stilltrue.model import Holds, SnapshotId, Verdict


def applies(plan: Plan) -> bool:
    """Whether the theorem applies to this world: it has no faults, and all relevant messages carry a stamp."""
    uncoloured = any((isinstance(op, Acquire) and op.fleet) or isinstance(op, Open) for body in plan.bodies() for op in body)
    return not (plan.faults or uncoloured or plan.hedged or plan.uninstrumented)


def check(world: World, assembled: Assembled, verdicts: Iterable[Verdict]) -> list[str]:
    """Check the theorem for one complete snapshot of a run; returns its violations."""
    snapshot = assembled.snapshot.ref.id
    if snapshot is None or assembled.outcome is not Outcome.COMPLETE:
        return []
    events = [entry for entry in world.log if entry.action[0] != "marker"]
    engine = Engine(World(world.plan, step_seconds=world.step_seconds), HANDLERS)
    recorded = engine.world
    try:
        _replay(engine, [entry for entry in events if entry.colour < snapshot])
        found = [
            *_same_reports(recorded, assembled),
            *_same_verdicts(recorded, verdicts),
            *_conserved(recorded, assembled),
        ]
        _replay(engine, [entry for entry in events if entry.colour >= snapshot])
    except (KeyError, IndexError, ValueError, AssertionError) as error:
        return [f"theorem 1: snapshot {snapshot}: the permuted run cannot happen: {error!r}"]
    if outline(recorded) != outline(world):
        found.append("the permuted run ends in another state")
    return [f"theorem 1: snapshot {snapshot}: {text}" for text in found]


def outline(world: World) -> dict[str, Any]:
    """The state of a world's computation, with the position of every party, message and lock, but without colours."""
    return {
        "packets": [action for action in world.enabled.all("deliver") if action[0] != "marker"],
        "parties": {
            who.name: (who.at, who.step, who.block is not None, tuple(lock.name for lock in who.locks))
            for process in world.processes.values()
            for who in process.parties.values()
        },
        "queues": {
            (process.name, pool): [queued.call.key for queued in process.queues[pool]]
            for process in world.processes.values()
            for pool in process.queues
        },
        "calls": sorted((key, call.over) for key, call in world.calls.items()),
        "tokens": {name: world.processes[name].tokens for name in sorted(world.processes)},
    }


def _replay(engine: Engine, entries: Iterable[Entry]) -> None:
    for entry in entries:
        engine.world.now = entry.now - engine.world.step_seconds
        engine.do(entry.action)


def _same_reports(recorded: World, assembled: Assembled) -> Iterable[str]:
    for name, report in sorted(assembled.reports.items()):
        again = recorded.processes[name].recorder.marked(report.snapshot, report.cut_at)
        recorded.processes[name].recorder.colour = SnapshotId(0)
        if again is None or replace(again, after=report.after) != report:
            yield f"{name} did not record the state to which its events before the cut lead"


def _same_verdicts(recorded: World, verdicts: Iterable[Verdict]) -> Iterable[str]:
    for verdict in verdicts:
        named = frozenset(name for name in verdict.remainder if "~" not in name)
        if verdict.holds is Holds.UNDETERMINED:
            continue
        if verdict.predicate == "deadlock" and not oracle.stuck(recorded, KNOWABLE) <= named <= oracle.stuck(recorded):
            yield f"the remainder is {sorted(oracle.stuck(recorded))} in the recorded state, not {sorted(named)}"
        if verdict.predicate == "termination" and (verdict.holds is Holds.TRUE) > oracle.terminated(recorded):
            yield "the recorded state is not terminated"


def _conserved(recorded: World, assembled: Assembled) -> Iterable[str]:
    """Check that the cut neither loses nor creates tokens: held and in transit, they add up to those of the recorded state."""
    if not recorded.plan.tokens or recorded.plan.limits != Limits():
        return
    held = sum(int(state.facts.get("token", 0)) for state in assembled.snapshot.processes.values())
    moving = sum(int(message.facts.get("token", 0)) for message in assembled.snapshot.in_transit)
    expected = sum(recorded.plan.tokens.values()) - oracle.tokens_gone(recorded)
    if held + moving != expected:
        yield f"{held} tokens are held and {moving} are in transit, but there are {expected}"
