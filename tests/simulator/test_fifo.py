"""Seeded runs over FIFO channels: every snapshot is reachable (Theorem 1), conserves moving facts, and can be restored."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from detector.simulator.fifo.permutation import check_reachable, occurred, permuted, same
from detector.simulator.fifo.system import FifoSystem, GlobalState, RecorderOf, StepError, markers
from detector.simulator.scenario.fifo import back_channels, barriers
from stilltrue.fifo import Channel, Topology, channel
from stilltrue.model import ProcessName, SnapshotId

SEEDS = range(100)


def ring_with_chords(rng: random.Random) -> Topology:
    names = [ProcessName(f"p{n}") for n in range(rng.randint(2, 5))]
    pairs = {(names[i], names[(i + 1) % len(names)]) for i in range(len(names))}
    pairs |= {(a, b) for a in names for b in names if a != b and rng.random() < 0.3}
    return Topology.of(names, [Channel(source=a, target=b) for a, b in sorted(pairs)])


def dataflow(rng: random.Random) -> Topology:
    """Sources, two layers with a random shuffle, and sometimes a loop."""
    layers = [[ProcessName(f"{'abc'[depth]}{n}") for n in range(rng.randint(1, 3))] for depth in range(3)]
    pairs = {(s, t) for above, below in pairwise(layers) for s in above for t in below}
    if rng.random() < 0.6:
        pairs.add((rng.choice(layers[2]), rng.choice(layers[1])))
    return Topology.of([n for layer in layers for n in layer], [Channel(source=a, target=b) for a, b in sorted(pairs)])


def total(state: GlobalState) -> int:
    messages = (message.facts for many in state.channels.values() for message in many)
    return sum(int(facts.get("tokens", 0)) for facts in (*state.states.values(), *messages))


def wander(system: FifoSystem, rng: random.Random, *, beginners: list[list[ProcessName]], steps: int = 120) -> None:
    """Random sends, deliveries and snapshot starts; in the end everything is delivered."""
    newest = 0
    for _ in range(steps):
        ready = [one for one in system.topology.channels if system.queues[one] and one not in system.held]
        dice = rng.random()
        if dice < 0.08 and newest < 4:
            newest += 1
            for name in rng.choice(beginners):
                system.begin(name, SnapshotId(newest))
        elif dice < 0.5 and ready:
            system.deliver(rng.choice(ready))
        else:
            on = rng.choice(system.topology.channels)
            if int(system.facts[on.source].get("tokens", 0)) > 0:
                system.send(on, what=f"m{len(system.steps)}", moving={"tokens": 1})
    system.drain()


def systems(seed: int, recorder: RecorderOf) -> FifoSystem:
    rng = random.Random(seed)
    topology = ring_with_chords(rng) if recorder is markers else dataflow(rng)
    system = FifoSystem(topology, {name: {"tokens": 5} for name in topology.processes}, recorder=recorder)
    back = back_channels(topology)
    sources = [name for name in topology.processes if not set(topology.incoming(name)) - back]
    anybody = [[name] for name in topology.processes] + [list(topology.processes[:2])]
    wander(system, rng, beginners=anybody if recorder is markers else [sources])
    return system


@pytest.mark.parametrize("recorder", [markers, barriers])
def test_every_snapshot_is_reached_by_the_permuted_run_and_conserves_the_tokens(recorder: RecorderOf) -> None:
    never_occurred = completed = in_channels = 0
    for seed in SEEDS:
        system = systems(seed, recorder)
        expected = total(system.initial)
        assert set(system.snapshots) == set(system.pending), f"seed {seed}: a snapshot never ended"
        for snapshot, state in system.snapshots.items():
            check_reachable(system, snapshot)
            assert total(state) == expected, f"seed {seed}: snapshot {snapshot}"
            completed += 1
            never_occurred += not occurred(system, snapshot)
            in_channels += any(state.channels.values())
    assert completed > len(SEEDS)
    assert never_occurred > 0, "no run was unruly enough to mean anything"
    assert in_channels > 0


@pytest.mark.parametrize("recorder", [markers, barriers])
def test_aligned_channels_hold_nothing_and_a_world_restored_ends_with_the_same_tokens(recorder: RecorderOf) -> None:
    for seed in range(30):
        system = systems(seed, recorder)
        for snapshot in system.snapshots:
            restored = system.restored(snapshot)
            assert same(restored.now(), system.snapshots[snapshot])
            again = SnapshotId(9)
            for name in system.topology.processes if recorder is markers else sources_of(system.topology):
                restored.begin(name, again)
            restored.drain()
            assert total(restored.snapshots[again]) == total(system.initial), f"seed {seed}"
            if recorder is barriers:
                held = {one for one, many in system.snapshots[snapshot].channels.items() if many}
                assert held <= back_channels(system.topology)


def sources_of(topology: Topology) -> list[ProcessName]:
    return [name for name in topology.processes if not set(topology.incoming(name)) - back_channels(topology)]


def test_an_impossible_step_is_refused() -> None:
    p, q = ProcessName("p"), ProcessName("q")
    system = FifoSystem(Topology.of([p, q], [channel("p", "q")]), {p: {"tokens": 1, "name": "x"}})
    with pytest.raises(StepError, match="p -> q is empty"):
        system.deliver(channel("p", "q"))
    with pytest.raises(StepError, match="there is no channel q -> p"):
        system.send(channel("q", "p"))
    with pytest.raises(StepError, match="there is no process r"):
        system.begin(ProcessName("r"), SnapshotId(1))
    with pytest.raises(StepError, match="p has tokens=1 and cannot give 2"):
        system.send(channel("p", "q"), moving={"tokens": 2})
    with pytest.raises(StepError, match="name is text and cannot move"):
        system.send(channel("p", "q"), moving={"name": 2})
    with pytest.raises(StepError, match="snapshot 1 is not completed"):
        system.restored(SnapshotId(1))
    with pytest.raises(StepError, match="snapshot 1 is not completed"):
        permuted(system, SnapshotId(1))
    assert system.steps == []
    assert system.events == []


def test_a_permutation_that_does_not_lead_to_the_recorded_state_is_noticed() -> None:
    system = systems(3, markers)
    snapshot, state = next(iter(system.snapshots.items()))
    name = system.topology.processes[0]
    system.snapshots[snapshot] = type(state)(
        snapshot=snapshot, states={**state.states, name: {"tokens": 99}}, channels=state.channels
    )
    with pytest.raises(StepError, match="do not lead to snapshot"):
        check_reachable(system, snapshot)
