"""Dataflow jobs on the real local runtime: points while it runs, exact restarts, loops, separate pipelines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Sharing, Stage, StageName
from detector.checkpoints.graph.job import Emit, Job, VertexContext
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import CompletedPoint, FailReason, PointKind, Value
from detector.checkpoints.runtime.operators import Collected, KeyedFold, SplitSource
from detector.checkpoints.runtime.pipeline import PipelineFailedError, PipelineSettings, PointFailedError
from detector.checkpoints.runtime.runtime import LocalRuntime
from stilltrue.model import ProcessName, SnapshotId
from tests.checkpoints.jobs import OUT, collatz, often

WORDS = ["still", "true", "once", "it", "holds", "it", "stays", "true"]
SPLITS: Mapping[str, Sequence[Value]] = {f"file-{n}": [WORDS[(n + i) % 8] for i in range(400)] for n in range(4)}
EXPECTED = Counter(str(word) for words in SPLITS.values() for word in words)
SRC, COUNT = StageName("src"), StageName("count")


def word(value: Value) -> str:
    return str(value)


def one_more(so_far: Value, _value: Value) -> Value:
    return (so_far if isinstance(so_far, int) else 0) + 1


def word_count(outs: list[list[Value]], *, step: Callable[[Value], None] = lambda _value: None) -> Job:
    graph = DataflowGraph.of(
        [
            Stage(name=SRC, parallelism=2, sharing=Sharing.SPLIT),
            Stage(name=COUNT, parallelism=2),
            Stage(name=OUT, parallelism=2),
        ],
        [Edge(source=SRC, target=COUNT, routing=Routing.KEYED), Edge(source=COUNT, target=OUT)],
    )

    class Counted(KeyedFold):
        def handle(self, value: Value, emit: Emit) -> None:
            step(value)
            super().handle(value, emit)

    return Job(
        graph=graph,
        make={
            SRC: lambda place: SplitSource(SPLITS, place, batch=4),
            COUNT: lambda _place: Counted(word, one_more),
            OUT: lambda context: Collected(context, outs[context.index]),
        },
        keys={(SRC, COUNT): word},
    )


def counted(states: Mapping[ProcessName, Value]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in ("count-1", "count-2"):
        state = states[ProcessName(name)]
        assert isinstance(state, dict)
        found.update({key: int(str(value)) for key, value in state.items()})
    return found


def shown(outs: list[list[Value]]) -> Counter[tuple[str, int]]:
    return Counter((str(pair[0]), int(str(pair[1]))) for out in outs for pair in out if isinstance(pair, list))


def exactly_once() -> Counter[tuple[str, int]]:
    return Counter((key, n) for key, total in EXPECTED.items() for n in range(1, total + 1))


async def test_a_bounded_job_counts_correctly_and_its_last_point_has_the_final_state() -> None:
    outs: list[list[Value]] = [[], []]
    runtime = LocalRuntime(word_count(outs), often())
    states = await runtime.run()
    (pipeline,) = runtime.pipelines.values()
    assert counted(states) == EXPECTED
    assert shown(outs) == exactly_once()
    assert len(pipeline.completed) > 2
    assert pipeline.completed[-1].states == states
    assert [point.id for point in pipeline.completed] == sorted(point.id for point in pipeline.completed)


async def test_the_job_resumes_from_every_point_to_the_same_result() -> None:
    first = LocalRuntime(word_count([[], []]), often())
    await first.run()
    (pipeline,) = first.pipelines.values()
    points = list(pipeline.completed)[:: max(1, len(pipeline.completed) // 6)]
    assert any(0 < sum(counted(point.states).values()) < sum(EXPECTED.values()) for point in points)
    for point in points:
        again = LocalRuntime(word_count([[], []]), often(), restored=[point])
        assert counted(await again.run()) == EXPECTED, f"from point {point.id}"


async def test_a_failing_vertex_restarts_its_pipeline_from_the_last_point_and_the_results_are_exact() -> None:
    seen = 0

    def trip(_value: Value) -> None:
        nonlocal seen
        seen += 1
        if seen in (500, 1100):
            raise RuntimeError("tripped")

    outs: list[list[Value]] = [[], []]
    runtime = LocalRuntime(word_count(outs, step=trip), often())
    states = await runtime.run()
    (pipeline,) = runtime.pipelines.values()
    assert pipeline.restarts == 2
    assert counted(states) == EXPECTED
    assert shown(outs) == exactly_once()


async def test_a_pipeline_that_fails_too_often_raises_with_the_cause() -> None:
    def trip(_value: Value) -> None:
        raise RuntimeError("always")

    runtime = LocalRuntime(word_count([[], []], step=trip), often(restarts_max=1))
    with pytest.raises(PipelineFailedError, match="failed 2 times, the last time with RuntimeError") as caught:
        await runtime.run()
    assert isinstance(caught.value.__cause__, RuntimeError)


def two_pipelines(outs: list[list[Value]], ready: asyncio.Event, go: asyncio.Event) -> Job:
    """Two unconnected pipelines; b's source does not end before ``go``."""
    names = [StageName(n) for n in ("a-src", "a-out", "b-src", "b-out")]
    graph = DataflowGraph.of(
        [Stage(name=name) for name in names],
        [Edge(source=names[0], target=names[1]), Edge(source=names[2], target=names[3])],
    )

    class Waiting(SplitSource):
        def read(self) -> Sequence[Value] | None:
            values = super().read()
            if values is None and not go.is_set():
                ready.set()
                return ()
            return None if values is None else list(values)

    def source(context: VertexContext) -> SplitSource:
        return Waiting({"s": list(range(100))}, context)

    return Job(
        graph=graph,
        make={
            names[0]: source,
            names[1]: lambda place: Collected(place, outs[0]),
            names[2]: source,
            names[3]: lambda place: Collected(place, outs[1]),
        },
    )


async def test_failure_of_one_connected_pipeline_leaves_the_others_alone() -> None:
    outs: list[list[Value]] = [[], []]
    ready, go = asyncio.Event(), asyncio.Event()
    runtime = LocalRuntime(two_pipelines(outs, ready, go), often())
    running = asyncio.create_task(runtime.run())
    await ready.wait()
    runtime.fail(ProcessName("a-out-1"), RuntimeError("killed"))
    a, b = runtime.pipelines[ProcessName("a-out-1")], runtime.pipelines[ProcessName("b-out-1")]
    untouched = dict(b.vertices)
    while a.restarts == 0:
        await asyncio.sleep(0)
    go.set()
    await running
    assert (a.restarts, b.restarts) == (1, 0)
    assert b.vertices == untouched
    assert all(reason is not FailReason.VERTEX_FAILED for _, reason in b.given_up)
    assert outs == [list(range(100)), list(range(100))]
    with pytest.raises(ValueError, match="there is no vertex x"):
        runtime.fail(ProcessName("x"), RuntimeError())


async def test_a_savepoint_has_its_name_and_can_be_taken_once() -> None:
    ready, go = asyncio.Event(), asyncio.Event()
    outs: list[list[Value]] = [[], []]
    runtime = LocalRuntime(two_pipelines(outs, ready, go), PipelineSettings(schedule=Schedule(interval_seconds=None)))
    with pytest.raises(PointFailedError, match="is not running"):
        await runtime.savepoint("before-upgrade")
    running = asyncio.create_task(runtime.run())
    await ready.wait()
    points = await runtime.savepoint("before-upgrade")
    assert {(point.kind, point.name) for point in points} == {(PointKind.SAVEPOINT, "before-upgrade")}
    assert [point.states[ProcessName(f"{n}-src-1")] for n, point in zip("ab", points, strict=True)] == [
        [{"split": "s", "at": 100}]
    ] * 2
    with pytest.raises(PointFailedError, match="a savepoint of that name exists"):
        await runtime.savepoint("before-upgrade")
    go.set()
    await running


async def test_a_savepoint_of_a_pipeline_that_stops_is_refused_not_left_waiting() -> None:
    ready, go = asyncio.Event(), asyncio.Event()
    runtime = LocalRuntime(two_pipelines([[], []], ready, go), often())
    running = asyncio.create_task(runtime.run())
    await ready.wait()
    saving = asyncio.create_task(runtime.savepoint("last"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(PointFailedError, match="the pipeline stopped before it was durable"):
        await saving
    with pytest.raises(asyncio.CancelledError):
        await running


class Shelf:
    """A store that can refuse to keep."""

    def __init__(self, *, broken_at: int = 0) -> None:
        self.points: dict[SnapshotId, CompletedPoint] = {}
        self.saves = 0
        self.broken_at = broken_at

    def save(self, point: CompletedPoint) -> None:
        self.saves += 1
        if self.saves == self.broken_at:
            raise OSError("disk full")
        self.points[point.id] = point

    def drop(self, point: SnapshotId) -> None:
        self.points.pop(point, None)


async def test_points_are_stored_durably_before_sinks_commit_and_old_ones_removed() -> None:
    shelf = Shelf(broken_at=2)
    outs: list[list[Value]] = [[], []]
    runtime = LocalRuntime(word_count(outs), often(), stores=lambda _pipeline: shelf)
    states = await runtime.run()
    (pipeline,) = runtime.pipelines.values()
    assert pipeline.restarts == 1, "a store that fails is a failure of the pipeline"
    assert counted(states) == EXPECTED
    assert shown(outs) == exactly_once()
    assert len(shelf.points) <= 2
    assert max(shelf.points) == pipeline.completed[-1].id


def test_a_point_of_another_graph_is_refused() -> None:
    async def of_one_pipeline() -> CompletedPoint:
        runtime = LocalRuntime(collatz([2], []), often())
        await runtime.run()
        return next(iter(runtime.pipelines.values())).completed[-1]

    point = asyncio.run(of_one_pipeline())
    with pytest.raises(ValueError, match="no pipeline of this graph has exactly the vertices check-1, end-1"):
        LocalRuntime(word_count([[], []]), restored=[point])


async def test_a_finished_source_ends_while_another_continues_and_stays_in_every_point() -> None:
    short, long, out = (StageName(n) for n in ("short", "long", "out"))
    ended = asyncio.Event()
    shown_: list[Value] = []

    class Patient(SplitSource):
        def read(self) -> Sequence[Value] | None:
            values = super().read()
            return () if values is None and not ended.is_set() else (None if values is None else list(values))

    graph = DataflowGraph.of(
        [Stage(name=short), Stage(name=long), Stage(name=out)],
        [Edge(source=short, target=out), Edge(source=long, target=out)],
    )
    job = Job(
        graph=graph,
        make={
            short: lambda place: SplitSource({"s": [1, 2, 3]}, place),
            long: lambda place: Patient({"s": [10, 20]}, place),
            out: lambda place: Collected(place, shown_),
        },
    )
    runtime = LocalRuntime(job, often())
    running = asyncio.create_task(runtime.run())
    (pipeline,) = runtime.pipelines.values()
    while not any(point.finished for point in pipeline.completed):
        await asyncio.sleep(0.001)
    ended.set()
    states = await running
    last = pipeline.completed[-1]
    assert last.finished == (ProcessName("short-1"),)
    assert states[ProcessName("short-1")] == [{"split": "s", "at": 3}]
    assert sorted(map(str, shown_)) == ["1", "10", "2", "20", "3"]
    shown_.clear()
    await LocalRuntime(job, often(), restored=[last]).run()
    assert sorted(map(str, shown_)) == ["1", "10", "2", "20", "3"], "the ended source does not read again"
