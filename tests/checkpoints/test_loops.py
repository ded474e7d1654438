"""Jobs with loops: they end when a point shows nothing in transit, and every point is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Stage, StageName
from detector.checkpoints.graph.job import Emit, Job
from detector.checkpoints.protocol.points import Value
from detector.checkpoints.runtime.inbox import InboxFullError
from detector.checkpoints.runtime.operators import Collected, SplitSource, Step
from detector.checkpoints.runtime.pipeline import PipelineFailedError, RecorderOf, barriers
from detector.checkpoints.runtime.runtime import LocalRuntime
from stilltrue.fifo import MarkerRecorder
from stilltrue.model import ProcessName
from tests.checkpoints.jobs import COLLATZ, OUT, collatz, often


def pairs(values: Sequence[Value]) -> list[list[int]]:
    return sorted([int(str(n)) for n in pair] for pair in values if isinstance(pair, list))


def by_markers(graph: DataflowGraph, vertex: ProcessName) -> MarkerRecorder[Value, object]:
    return MarkerRecorder(vertex, incoming=graph.topology.incoming(vertex), outgoing=graph.topology.outgoing(vertex))


@pytest.mark.parametrize("recorder_of", [barriers, by_markers])
async def test_a_loop_ends_when_a_point_shows_nothing_in_transit_and_every_point_is_exact(recorder_of: RecorderOf) -> None:
    out: list[Value] = []
    runtime = LocalRuntime(collatz(list(range(2, 120)), out), often(), recorder_of=recorder_of)
    await runtime.run()
    (pipeline,) = runtime.pipelines.values()
    assert pairs(out) == COLLATZ
    in_loop = [point for point in pipeline.completed if not point.drained]
    assert in_loop, "no point caught the loop at work"
    assert pipeline.completed[-1].drained
    if recorder_of is barriers:
        assert {str(one) for point in in_loop for one in point.snapshot.channels} == {"check-1 -> step-1"}
    for point in (in_loop[0], in_loop[-1]):
        out = []
        await LocalRuntime(collatz(list(range(2, 120)), out), often(), restored=[point], recorder_of=recorder_of).run()
        assert pairs(out) == COLLATZ, f"from point {point.id}"


async def test_a_loop_that_produces_more_than_it_consumes_fails_instead_of_deadlocking() -> None:
    job = collatz([3], [])

    def threefold(value: Value, emit: Emit) -> None:
        for _ in range(3):
            emit(value, to="step")

    grow = Step(threefold)
    job = Job(graph=job.graph, make={**job.make, StageName("check"): lambda _place: grow})
    runtime = LocalRuntime(job, often(back_records_max=50, restarts_max=0))
    with pytest.raises(PipelineFailedError) as caught:
        await runtime.run()
    assert isinstance(caught.value.__cause__, InboxFullError)


async def test_a_vertex_in_a_loop_outlives_its_sources_as_long_as_records_circulate() -> None:
    short, long, loop = StageName("short"), StageName("long"), StageName("loop")
    graph = DataflowGraph.of(
        [Stage(name=short), Stage(name=long), Stage(name=loop), Stage(name=OUT)],
        [
            Edge(source=short, target=loop),
            Edge(source=loop, target=loop),
            Edge(source=loop, target=OUT),
            Edge(source=long, target=OUT),
        ],
    )
    left = asyncio.Event()

    def circulate(value: Value, emit: Emit) -> None:
        """Send the record round until a point shows that the short source has finished; then let it leave."""
        over = any(ProcessName("short-1") in point.finished for point in pipeline.completed)
        emit(value, to=OUT if over else loop)
        if over:
            left.set()

    class UntilItLeft(SplitSource):
        def read(self) -> Sequence[Value] | None:
            return None if left.is_set() else ()

    out: list[Value] = []
    make = {
        short: lambda context: SplitSource({"s": ["round"]}, context),
        long: lambda context: UntilItLeft({}, context),
        loop: lambda _context: Step(circulate),
        OUT: lambda context: Collected(context, out),
    }
    runtime = LocalRuntime(Job(graph=graph, make=make), often())  # type: ignore[arg-type]
    (pipeline,) = runtime.pipelines.values()
    async with asyncio.timeout(20):
        await runtime.run()
    assert out == ["round"]
