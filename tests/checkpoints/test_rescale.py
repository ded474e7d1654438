"""A job stopped at a point continues with another parallelism to the same results; impossible changes are refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Sharing, Stage, StageName
from detector.checkpoints.graph.job import Emit, Job
from detector.checkpoints.graph.key_groups import KEY_GROUPS, group_of, owner_of
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import CompletedPoint, PointKind, Record, State, Value
from detector.checkpoints.runtime.operators import KeyedFold, SplitSource, Step
from detector.checkpoints.runtime.pipeline import PipelineSettings, barriers
from detector.checkpoints.runtime.runtime import LocalRuntime
from detector.checkpoints.storage.directory import PointDirectory
from detector.checkpoints.storage.rescale import RescaleError, rescaled
from stilltrue.fifo import Channel, MarkerRecorder, channel
from stilltrue.model import ProcessName, SnapshotId

SRC, AGAIN, COUNT = StageName("src"), StageName("again"), StageName("count")
SPLITS: Mapping[str, Sequence[Value]] = {f"s{n}": [[f"k{(n * 7 + i) % 23}", 3] for i in range(150)] for n in range(5)}
EXPECTED = Counter(
    {key: 3 * total for key, total in Counter(f"k{(n * 7 + i) % 23}" for n in range(5) for i in range(150)).items()}
)


def graph(sources: int, counts: int) -> DataflowGraph:
    """Every value goes round the keyed loop ``again`` three times in all, and is counted each time."""
    return DataflowGraph.of(
        [
            Stage(name=SRC, parallelism=sources, sharing=Sharing.SPLIT),
            Stage(name=COUNT, parallelism=counts, sharing=Sharing.KEYED),
            Stage(name=AGAIN, parallelism=counts, sharing=Sharing.SPLIT),
        ],
        [
            Edge(source=SRC, target=COUNT, routing=Routing.KEYED),
            Edge(source=COUNT, target=AGAIN, routing=Routing.FORWARD),
            Edge(source=AGAIN, target=COUNT, routing=Routing.KEYED),
        ],
    )


def key_of(value: Value) -> str:
    assert isinstance(value, list)
    return str(value[0])


class Counting(KeyedFold):
    """Counts, and passes the value itself on."""

    def __init__(self) -> None:
        super().__init__(key_of, lambda so_far, _value: (so_far if isinstance(so_far, int) else 0) + 1)

    def handle(self, value: Value, emit: Emit) -> None:
        super().handle(value, lambda _result: None)
        emit(value)


def once_more(value: Value, emit: Emit) -> None:
    assert isinstance(value, list)
    left = int(str(value[1])) - 1
    if left:
        emit([value[0], left])


def job(sources: int, counts: int) -> Job:
    return Job(
        graph=graph(sources, counts),
        make={
            SRC: lambda place: SplitSource(SPLITS, place, batch=2),
            COUNT: lambda _place: Counting(),
            AGAIN: lambda _place: Step(once_more),
        },
        keys={(SRC, COUNT): key_of, (AGAIN, COUNT): key_of},
    )


def settings() -> PipelineSettings:
    schedule = Schedule(interval_seconds=0.002, pending_max=2, kept_max=1000)
    return PipelineSettings(schedule=schedule, tick_seconds=0.001, channel_records_max=4, remembered_max=100_000)


def counted(states: Mapping[ProcessName, Value]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, state in states.items():
        if name.startswith("count-"):
            assert isinstance(state, dict)
            assert not found.keys() & state.keys(), "a key has one owner"
            found.update({key: int(str(n)) for key, n in state.items()})
    return found


@pytest.mark.parametrize(("sources", "counts"), [(1, 1), (3, 4), (5, 2)])
def test_a_keyed_job_resumes_from_its_files_with_another_parallelism(tmp_path: Path, sources: int, counts: int) -> None:
    async def first() -> list[CompletedPoint]:
        runtime = LocalRuntime(job(2, 3), settings(), stores=PointDirectory(tmp_path).of)
        assert counted(await runtime.run()) == EXPECTED
        return list(next(iter(runtime.pipelines.values())).completed)

    points = [point for point in asyncio.run(first()) if not point.drained]
    assert points, "no point caught the loop at work"
    chosen = points[len(points) // 2]
    (kept,) = (folder.path for folder in [PointDirectory(tmp_path).of(min(chosen.states))])
    for path in kept.glob("*.point"):
        if int(path.stem) > chosen.id:
            path.unlink()
    from_files = PointDirectory(tmp_path).latest()
    assert from_files == (chosen,)
    assert 0 < sum(counted(chosen.states).values()) < sum(EXPECTED.values())
    other = job(sources, counts)
    restored = rescaled(from_files, graph(2, 3), other.graph)
    assert counted(asyncio.run(LocalRuntime(other, settings(), restored=restored).run())) == EXPECTED


def by_markers(of: DataflowGraph, vertex: ProcessName) -> MarkerRecorder[Value, Record]:
    return MarkerRecorder(vertex, incoming=of.topology.incoming(vertex), outgoing=of.topology.outgoing(vertex))


@pytest.mark.parametrize("seed", range(6))
async def test_killed_again_and_again_and_moved_to_another_parallelism_the_counts_are_exact(seed: int) -> None:
    rng = random.Random(seed)
    first, other = job(rng.randint(1, 4), rng.randint(1, 4)), job(rng.randint(1, 4), rng.randint(1, 4))
    schedule = Schedule(interval_seconds=rng.choice([0.001, 0.004]), pending_max=rng.randint(1, 4))
    bounds = PipelineSettings(
        schedule=schedule,
        tick_seconds=0.001,
        channel_records_max=rng.choice([1, 4, 64]),
        restarts_max=10,
        remembered_max=10_000,
    )
    runtime = LocalRuntime(first, bounds, recorder_of=rng.choice([barriers, by_markers]))
    running = asyncio.create_task(runtime.run())
    for _ in range(rng.randint(1, 4)):
        await asyncio.sleep(rng.random() * 0.02)
        if not running.done():
            runtime.fail(rng.choice(first.graph.topology.processes), RuntimeError("killed"))
    assert counted(await running) == EXPECTED
    (pipeline,) = runtime.pipelines.values()
    point = rng.choice(list(pipeline.completed))
    restored = rescaled([point], first.graph, other.graph)
    assert counted(await LocalRuntime(other, bounds, restored=restored).run()) == EXPECTED, f"from point {point.id}"


def test_key_groups_are_stable_and_assigned_in_ranges() -> None:
    assert (group_of("stilltrue"), group_of("")) == (30, 0)
    for parallelism in (1, 3, 7, KEY_GROUPS):
        owners = {group_of(f"k{n}"): owner_of(f"k{n}", parallelism) for n in range(3000)}
        ordered = [owner for _, owner in sorted(owners.items())]
        assert ordered == sorted(ordered)
        assert set(ordered) == set(range(parallelism))


A, B = StageName("a"), StageName("b")


def two_stages(a: int, b: int, routing: Routing, sharing: Sharing = Sharing.SPLIT) -> DataflowGraph:
    stages = [Stage(name=A, parallelism=a, sharing=Sharing.SPLIT), Stage(name=B, parallelism=b, sharing=sharing)]
    return DataflowGraph.of(stages, [Edge(source=A, target=B, routing=routing)])


def point_of(graph: DataflowGraph, states: Mapping[str, Value], channels: Mapping[Channel, list[Record]]) -> CompletedPoint:
    snapshot = State(
        snapshot=SnapshotId(5),
        states={ProcessName(name): states.get(name, []) for name in graph.topology.processes},
        channels={one: tuple(records) for one, records in channels.items()},
    )
    return CompletedPoint(id=SnapshotId(5), kind=PointKind.PERIODIC, name="", triggered=0.0, completed=1.0, snapshot=snapshot)


def test_records_in_transit_go_to_their_keys_new_owner_in_order() -> None:
    old, new = two_stages(2, 2, Routing.KEYED), two_stages(1, 3, Routing.KEYED)
    records = [Record(value=n, key=f"k{n % 4}") for n in range(12)]
    by_owner = {channel("a-1", f"b-{owner + 1}"): [r for r in records if owner_of(str(r.key), 2) == owner] for owner in (0, 1)}
    (moved,) = rescaled([point_of(old, {}, by_owner)], old, new)
    for one, kept in moved.snapshot.channels.items():
        assert one.source == "a-1"
        for record in kept:
            assert one.target == f"b-{owner_of(str(record.key), 3) + 1}"
        for key in {record.key for record in kept}:
            mine = [record.value for record in kept if record.key == key]
            assert mine == [record.value for record in records if record.key == key]
    assert sum(map(len, moved.snapshot.channels.values())) == 12


def test_split_states_are_redistributed() -> None:
    old, new = two_stages(2, 2, Routing.REBALANCE), two_stages(3, 2, Routing.REBALANCE)
    on = channel("a-2", "b-1")
    (moved,) = rescaled([point_of(old, {"a-1": [1, 2], "a-2": [3, 4]}, {on: [Record(value=9)]})], old, new)
    assert [moved.states[ProcessName(f"a-{n}")] for n in (1, 2, 3)] == [[1, 4], [2], [3]]
    assert moved.snapshot.channels == {on: (Record(value=9),)}


def test_a_forward_graph_with_another_parallelism_has_other_pipelines() -> None:
    old, new = two_stages(1, 1, Routing.FORWARD), two_stages(2, 2, Routing.FORWARD)
    moved = rescaled([point_of(old, {"a-1": [1, 2, 3], "b-1": []}, {})], old, new)
    assert [sorted(point.states) for point in moved] == [["a-1", "b-1"], ["a-2", "b-2"]]
    assert [point.states[ProcessName(f"a-{n}")] for n, point in enumerate(moved, 1)] == [[1, 3], [2]]


def test_a_state_that_cannot_be_redistributed_is_refused() -> None:
    old, new = two_stages(1, 1, Routing.KEYED, Sharing.WHOLE), two_stages(1, 2, Routing.KEYED, Sharing.WHOLE)
    with pytest.raises(RescaleError, match="stage b: its state is WHOLE, so it keeps its parallelism of 1"):
        rescaled([point_of(old, {}, {})], old, new)
    keyed = two_stages(1, 2, Routing.KEYED, Sharing.KEYED)
    with pytest.raises(RescaleError, match="stage b: its state is KEYED, so each must be a mapping"):
        rescaled([point_of(old, {"b-1": [1]}, {})], old, keyed)
    with pytest.raises(RescaleError, match="two vertices hold the key 'k'"):
        rescaled([point_of(keyed, {"b-1": {"k": 1}, "b-2": {"k": 2}}, {})], keyed, keyed)
    split = two_stages(2, 1, Routing.KEYED, Sharing.SPLIT)
    with pytest.raises(RescaleError, match="stage a: its state is SPLIT, so each must be a list"):
        rescaled([point_of(old, {"a-1": 5}, {})], old, split)
    with pytest.raises(RescaleError, match="do not cover the old graph's vertices"):
        rescaled([], old, new)
    with pytest.raises(RescaleError, match="different stages"):
        rescaled([point_of(old, {}, {})], old, DataflowGraph.of([Stage(name=A)], []))
    cast, wider = two_stages(1, 1, Routing.BROADCAST), two_stages(1, 2, Routing.BROADCAST)
    with pytest.raises(RescaleError, match="a broadcast was in transit"):
        rescaled([point_of(cast, {}, {channel("a-1", "b-1"): [Record(value=1)]})], cast, wider)
