"""Checks theorem 1 for a run over FIFO channels: reordered so that events before the cuts come first, it passes through the
recorded state.

Chandy and Lamport 1985, section 4: the recorded state is reachable, though it may never have occurred. This module builds that
permutation, replays it step by step, and compares the states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from detector.simulator.fifo.system import FifoSystem, GlobalState, Step, StepError, StepKind, moved
from stilltrue.fifo import Channel, ChannelSnapshot
from stilltrue.model import Facts, Message, ProcessName, SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation:
    """The run reordered for one snapshot: the steps before the cuts, then those after, each part in the original order."""

    before: tuple[Step, ...]
    after: tuple[Step, ...]


def permuted(system: FifoSystem, snapshot: SnapshotId) -> Permutation:
    """Permute the steps of ``system`` for a completed snapshot; raises StepError if it is not completed."""
    if snapshot not in system.snapshots:
        raise StepError(f"snapshot {snapshot} is not completed")
    return Permutation(
        before=tuple(step for step in system.steps if snapshot not in step.cut_for),
        after=tuple(step for step in system.steps if snapshot in step.cut_for),
    )


def states(initial: GlobalState, steps: Sequence[Step]) -> Iterator[GlobalState]:
    """Replay ``steps`` from ``initial``; yields the state before the first and after each. StepError if one is impossible."""
    facts = {name: dict(one) for name, one in initial.states.items()}
    queues = {one: deque(messages) for one, messages in initial.channels.items()}
    yield _state(initial, facts, queues)
    for step in steps:
        sign = -1 if step.kind is StepKind.SEND else 1
        if step.channel is not None and step.message is not None:
            facts[step.process] = moved(facts[step.process], step.message.facts, sign, step.process)
            _move(queues[step.channel], step)
        facts[step.process] = {**facts[step.process], **step.change}
        yield _state(initial, facts, queues)


def check_reachable(system: FifoSystem, snapshot: SnapshotId) -> Permutation:
    """Build the permutation, replay it and compare the states; returns it if theorem 1 holds.

    Raises StepError if a step cannot happen at its place in the permutation, if the steps before the cuts do not lead to the
    recorded state, or if the whole permutation does not end in the run's present state.
    """
    order = permuted(system, snapshot)
    recorded = system.snapshots[snapshot]
    reached = list(states(system.initial, (*order.before, *order.after)))
    if not same(reached[len(order.before)], recorded):
        raise StepError(f"the steps before the cuts do not lead to snapshot {snapshot}")
    if not same(reached[-1], system.now()):
        raise StepError(f"the run permuted for snapshot {snapshot} ends in another state")
    return order


def occurred(system: FifoSystem, snapshot: SnapshotId) -> bool:
    """Whether the recorded state was ever the true global state of the run."""
    recorded = system.snapshots[snapshot]
    return any(same(state, recorded) for state in states(system.initial, system.steps))


def same(one: GlobalState, other: GlobalState) -> bool:
    """Whether two global states have the same facts and the same messages in the same order."""
    return dict(one.states) == dict(other.states) and dict(one.channels) == dict(other.channels)


def _move(queue: deque[Message], step: Step) -> None:
    assert step.message is not None
    if step.kind is StepKind.SEND:
        queue.append(step.message)
    elif not queue or queue.popleft() != step.message:
        raise StepError(f"{step} cannot happen: the message is not at the head of its channel")


def _state(
    initial: GlobalState, facts: Mapping[ProcessName, Facts], queues: Mapping[Channel, Iterable[Message]]
) -> GlobalState:
    return ChannelSnapshot(
        snapshot=initial.snapshot,
        states={name: dict(facts[name]) for name in initial.states},
        channels={one: tuple(queue) for one, queue in queues.items()},
    )
