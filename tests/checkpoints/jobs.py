"""Jobs of the tests: the lengths of Collatz sequences, by a loop."""

from __future__ import annotations

from collections.abc import Sequence

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Stage, StageName
from detector.checkpoints.graph.job import Emit, Job
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import Value
from detector.checkpoints.runtime.operators import Collected, SplitSource, Step
from detector.checkpoints.runtime.pipeline import PipelineSettings

OUT = StageName("out")


def often(**more: object) -> PipelineSettings:
    schedule = Schedule(interval_seconds=0.002, pending_max=3)
    return PipelineSettings(schedule=schedule, tick_seconds=0.001, channel_records_max=8, remembered_max=100_000, **more)  # type: ignore[arg-type]


def collatz(numbers: Sequence[Value], out: list[Value], *, records_max: int = 1000) -> Job:
    """A loop: ``step`` sends each number round until it is 1, counting the rounds."""
    src, step, check, end = (StageName(n) for n in ("src", "step", "check", "end"))
    graph = DataflowGraph.of(
        [Stage(name=src), Stage(name=step), Stage(name=check), Stage(name=end)],
        [
            Edge(source=src, target=step),
            Edge(source=step, target=check),
            Edge(source=check, target=step),
            Edge(source=check, target=end),
        ],
    )

    def once(value: Value, emit: Emit) -> None:
        start, n, rounds = value if isinstance(value, list) else [value, value, 0]
        n = int(str(n))
        emit([start, n // 2 if n % 2 == 0 else 3 * n + 1, int(str(rounds)) + 1])

    def sort_out(value: Value, emit: Emit) -> None:
        assert isinstance(value, list)
        if value[1] == 1:
            emit([value[0], value[2]], to="end")
        else:
            emit(value, to="step")

    return Job(
        graph=graph,
        make={
            src: lambda place: SplitSource({"n": numbers}, place),
            step: lambda _place: Step(once),
            check: lambda _place: Step(sort_out),
            end: lambda place: Collected(place, out),
        },
    )


def rounds_of(n: int) -> int:
    rounds = 0
    while True:
        n, rounds = (n // 2 if n % 2 == 0 else 3 * n + 1), rounds + 1
        if n == 1:
            return rounds


COLLATZ = sorted([n, rounds_of(n)] for n in range(2, 120))
