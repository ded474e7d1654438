"""A stop-the-world snapshot holds all states, and the job continues to the same result."""

from __future__ import annotations

import asyncio

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Stage, StageName
from detector.checkpoints.graph.job import Job
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import Value
from detector.checkpoints.runtime.operators import Collected, SplitSource
from detector.checkpoints.runtime.pipeline import PipelineSettings
from detector.checkpoints.runtime.runtime import LocalRuntime
from stilltrue.model import ProcessName
from tests.bench.stop_the_world import stopped_states

SRC, OUT = StageName("src"), StageName("out")


async def test_stopped_states_hold_everything_read_with_nothing_in_transit() -> None:
    graph = DataflowGraph.of([Stage(name=SRC), Stage(name=OUT)], [Edge(source=SRC, target=OUT)])
    out: list[Value] = []
    job = Job(
        graph=graph,
        make={
            SRC: lambda place: SplitSource({"s": list(range(2000))}, place, batch=8),
            OUT: lambda place: Collected(place, out),
        },
    )
    runtime = LocalRuntime(job, PipelineSettings(schedule=Schedule(interval_seconds=None), channel_records_max=4))
    (pipeline,) = runtime.pipelines.values()
    running = asyncio.create_task(runtime.run())
    reads = []
    for _ in range(5):
        await asyncio.sleep(0)
        states = await stopped_states(pipeline)
        if not states:
            continue  # it had not begun
        received = states[ProcessName("out-1")]
        assert isinstance(received, list)
        assert states[ProcessName("src-1")] == [{"split": "s", "at": len(received)}]
        assert received == list(range(len(received)))
        reads.append(len(received))
    assert reads == sorted(reads)
    assert reads[-1] > 0
    await running
    assert out == list(range(2000))
