"""The cost of snapshots: run time by interval and number of processes, for five ways of taking them.

    python tests/bench/test_snapshot_effect.py [--out DIR] [--records N] [--rounds N]     prints the tables; --out also keeps
                                                                      snapshot-effect.md and snapshot-effect.svg there
    pytest tests/bench/test_snapshot_effect.py                        the same, tiny; asserts behaviour, never times

The experiment of Carbone et al. 2015 (its evaluation) on the local runtime: a job of sources, a keyed shuffle, counters
and sinks is run to its end, and timed. Rounds are interleaved and the best of each counts: what else the machine does can
only add to it.

- none: no snapshot but the one at the end.
- stop-the-world: sources pause, channels drain, the states are written to the disk, then all goes on.
- barriers: asynchronous barriers; the disk is written while the work goes on.
- markers: Chandy and Lamport's, the channels' records kept with the states.
- colours: the agent's recorder; every record is a call with its stamp and its reply, nothing is kept but the reports.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Sharing, Stage, StageName
from detector.checkpoints.graph.job import Emit, Job, VertexContext
from detector.checkpoints.protocol.barriers import BarrierRecorder
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import Record, Value
from detector.checkpoints.runtime.operators import KeyedFold, SplitSource
from detector.checkpoints.runtime.pipeline import Pipeline, PipelineSettings, RecorderOf, barriers
from detector.checkpoints.runtime.runtime import LocalRuntime
from detector.checkpoints.storage.directory import PointDirectory
from detector.checkpoints.storage.files import FileKind, write_body
from detector.checkpoints.storage.values import to_json
from detector.core.protocol.assembler import Outcome, PendingSnapshot
from stilltrue.fifo import Channel, ChannelRecorder, Effect, MarkerRecorder
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp

sys.path.insert(0, str(Path(__file__).parents[2]))  # for a run as a script
from tests.bench.stop_the_world import States, stopped_states

WAYS = ("none", "stop-the-world", "barriers", "markers", "colours")
INTERVALS_MS = (5, 10, 20, 50, 100, 200)
PARALLELISM = (1, 2, 4, 8)
KEYS = 2_000
SRC, COUNT, SINK = StageName("src"), StageName("count"), StageName("sink")


class Total:
    """A sink that counts."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, value: Value, emit: Emit) -> None:
        self.count += 1

    def state(self) -> Value:
        return self.count

    def restore(self, state: Value) -> None:
        self.count = int(str(state))


def job(records: int, parallelism: int) -> Job:
    def share(context: VertexContext) -> SplitSource:
        mine = {f"s{n}": [f"k{i * 7 % KEYS}" for i in range(records // parallelism)] for n in range(parallelism)}
        return SplitSource(mine, context, batch=64)

    graph = DataflowGraph.of(
        [
            Stage(name=SRC, parallelism=parallelism, sharing=Sharing.SPLIT),
            Stage(name=COUNT, parallelism=parallelism, sharing=Sharing.KEYED),
            Stage(name=SINK, parallelism=parallelism),
        ],
        [Edge(source=SRC, target=COUNT, routing=Routing.KEYED), Edge(source=COUNT, target=SINK, routing=Routing.REBALANCE)],
    )
    return Job(
        graph=graph,
        make={
            SRC: share,
            COUNT: lambda _place: KeyedFold(str, lambda so_far, _value: (so_far if isinstance(so_far, int) else 0) + 1),
            SINK: lambda _place: Total(),
        },
        keys={(SRC, COUNT): str},
    )


def by_markers(graph: DataflowGraph, vertex: ProcessName) -> ChannelRecorder[Value, Record]:
    return MarkerRecorder(vertex, incoming=graph.topology.incoming(vertex), outgoing=graph.topology.outgoing(vertex))


@dataclass
class Colours:
    """The agent's recorders of one run, and what passes between them beside the records."""

    recorders: dict[ProcessName, Recorder] = field(default_factory=dict)
    stamps: dict[Channel, deque[tuple[Recorder, object, Stamp]]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    taken: int = 0

    def of(self, graph: DataflowGraph, vertex: ProcessName) -> ChannelRecorder[Value, Record]:
        process = ProcessId(service=graph.stage_of[vertex], instance=vertex, incarnation=1)
        self.recorders[vertex] = Recorder(process=process, reactive=True)
        for one in graph.topology.outgoing(vertex):
            self.stamps[one] = deque()
        incoming, outgoing = graph.topology.incoming(vertex), graph.topology.outgoing(vertex)
        return Coloured(self, vertex, BarrierRecorder(vertex, incoming=incoming, outgoing=outgoing))

    async def snapshot(self) -> None:
        """One snapshot as the detector takes it: a mark to everybody, a report from everybody, put together and checked."""
        self.taken += 1
        snapshot = SnapshotId(self.taken)
        members = {name: recorder.process for name, recorder in self.recorders.items()}
        pending = PendingSnapshot(snapshot=snapshot, members=members, begun=0.0, begun_by="bench")
        for recorder in self.recorders.values():
            self.keep(recorder.marked(snapshot, 0.0))
            await asyncio.sleep(0)  # so that stamps overtake marks
        for report in self.reports:
            pending.offer(report)
        self.reports.clear()
        assert pending.assembled(0.0).outcome is Outcome.COMPLETE

    def keep(self, report: Report | None) -> None:
        if report is not None:
            self.reports.append(report)


class Coloured:
    """Barriers for the end of the run; for all else the agent's recorder: each record a call, stamped, served, answered."""

    def __init__(self, colours: Colours, vertex: ProcessName, barriers: BarrierRecorder[Value, Record]) -> None:
        self.colours, self.barriers = colours, barriers
        self.recorder = colours.recorders[vertex]
        self.channels: dict[Channel, ChannelRecord] = {}

    def begins(self, snapshot: SnapshotId, state: Callable[[], Value]) -> tuple[Effect[Value, Record], ...]:
        return self.barriers.begins(snapshot, state)

    def sent(self, on: Channel) -> None:
        self.barriers.sent(on)
        channel = self.channels.setdefault(on, ChannelRecord(on.target))
        made, stamp = self.recorder.sent(method="/job.Vertex/Take", channel=channel, now=0.0)
        self.colours.stamps[on].append((self.recorder, made, stamp))

    def received(self, on: Channel, message: Record) -> tuple[Effect[Value, Record], ...]:
        caller, made, stamp = self.colours.stamps[on].popleft()
        served, report = self.recorder.arrived(stamp, method="/job.Vertex/Take", now=0.0)
        self.colours.keep(report)
        self.recorder.started(served)
        self.colours.keep(caller.settled(made, self.recorder.replied(served), 0.0))  # type: ignore[arg-type]
        return self.barriers.received(on, message)

    def marked(self, on: Channel, snapshot: SnapshotId, state: Callable[[], Value]) -> tuple[Effect[Value, Record], ...]:
        return self.barriers.marked(on, snapshot, state)

    def ended(self, on: Channel) -> tuple[Effect[Value, Record], ...]:
        return self.barriers.ended(on)

    def gives_up(self, snapshot: SnapshotId) -> tuple[Effect[Value, Record], ...]:
        return self.barriers.gives_up(snapshot)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run's outcome: its time by the clock and on the processor, snapshots completed in it, what the sinks counted."""

    seconds: float
    cpu_seconds: float
    snapshots: int
    counted: int


async def run(way: str, *, records: int, parallelism: int, interval_ms: int, folder: Path) -> Run:
    interval = interval_ms / 1000
    colours = Colours()
    recorder_of: RecorderOf = {"markers": by_markers, "colours": colours.of}.get(way, barriers)
    scheduled = interval if way in ("barriers", "markers") else None
    settings = PipelineSettings(schedule=Schedule(interval_seconds=scheduled), channel_records_max=256)
    stores = PointDirectory(folder).of if way in ("barriers", "markers") else None
    runtime = LocalRuntime(job(records, parallelism), settings, stores=stores, recorder_of=recorder_of)
    (pipeline,) = runtime.pipelines.values()
    others: list[int] = []
    taking = asyncio.create_task(beside(way, pipeline, colours, interval, folder, others))
    begun, cpu_begun = time.perf_counter(), time.process_time()
    states = await runtime.run()
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    taking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await taking
    counted = sum(int(str(state)) for name, state in states.items() if name.startswith(SINK))
    return Run(seconds=seconds, cpu_seconds=cpu_seconds, snapshots=len(others) + pipeline.completed_count - 1, counted=counted)


async def beside(way: str, pipeline: Pipeline, colours: Colours, interval: float, folder: Path, taken: list[int]) -> None:
    """Take the snapshots that the coordinator does not take."""

    async def keep(states: States) -> None:
        body: Value = {name: to_json(state) for name, state in states.items()}
        await asyncio.to_thread(write_body, folder / f"stopped-{len(taken) % 2}", FileKind.POINT, body)

    while way in ("stop-the-world", "colours"):
        await asyncio.sleep(interval)
        if way == "colours":
            await colours.snapshot()
        else:
            await stopped_states(pipeline, keep)
        taken.append(1)


Table = Mapping[tuple[str, int], Run]


def measure(settings: Sequence[tuple[int, int, int]], *, rounds: int, which: Callable[[int, int], int]) -> Table:
    """The best runs by way and by what ``which`` picks of (interval in ms, parallelism); ``settings`` have the records last."""
    runs: dict[tuple[str, int], list[Run]] = {}
    for nth in range(rounds):
        for interval_ms, parallelism, records in settings:
            for way in WAYS:
                with tempfile.TemporaryDirectory() as folder:
                    one = asyncio.run(
                        run(way, records=records, parallelism=parallelism, interval_ms=interval_ms, folder=Path(folder))
                    )
                runs.setdefault((way, which(interval_ms, parallelism)), []).append(one)
            print(f"round {nth + 1}/{rounds}: {interval_ms} ms, {3 * parallelism} processes", file=sys.stderr)
    return {key: best(many) for key, many in runs.items()}


def best(many: Sequence[Run]) -> Run:
    """The least time by the clock, and the least on the processor; the snapshots are those of the former."""
    fastest = min(many, key=lambda one: one.seconds)
    return dataclasses.replace(fastest, cpu_seconds=min(one.cpu_seconds for one in many))


def pooled(measured: Table) -> Table:
    """Where the interval varies, *none* is the same run in every row: the best of all its rounds stands in each."""
    none = best([one for (way, _), one in measured.items() if way == "none"])
    return {key: none if key[0] == "none" else one for key, one in measured.items()}


def table(measured: Table, head: str) -> list[str]:
    """The measurements as a Markdown table: seconds by the clock / on the processor (snapshots taken)."""
    columns = sorted({at for _, at in measured})
    lines = [f"| {head} | " + " | ".join(WAYS) + " |", "|---:" * (len(WAYS) + 1) + "|"]
    for at in columns:
        runs = (measured[way, at] for way in WAYS)
        cells = (f"{one.seconds:.2f} / {one.cpu_seconds:.2f} ({one.snapshots})" for one in runs)
        lines.append(f"| {at} | " + " | ".join(cells) + " |")
    return lines


COLOURS = dict(zip(WAYS, ("#868e96", "#e03131", "#1971c2", "#2f9e44", "#e8590c"), strict=True))


def panel(measured: Table, title: str, left: int) -> list[str]:
    """One chart: run time over what was varied, a line a way."""
    columns = sorted({at for _, at in measured})
    top = 1.1 * max(one.seconds for one in measured.values())
    x = {at: left + 60 + index * 320 // max(len(columns) - 1, 1) for index, at in enumerate(columns)}
    parts = [f'<text x="{left + 220}" y="24" text-anchor="middle" font-weight="600">{title}</text>']
    for share in range(5):
        y = 300 - share * 60
        parts.append(f'<line x1="{left + 50}" y1="{y}" x2="{left + 390}" y2="{y}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{left + 44}" y="{y + 4}" text-anchor="end">{share * top / 4:.2f} s</text>')
    parts += [f'<text x="{x[at]}" y="320" text-anchor="middle">{at}</text>' for at in columns]
    for way in WAYS:
        points = " ".join(f"{x[at]},{300 - 240 * measured[way, at].seconds / top:.0f}" for at in columns)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[way]}" stroke-width="2"/>')
    return parts


def plot(by_interval: Table, by_processes: Table) -> str:
    """Both charts and the legend as one SVG."""
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 880 370" width="880" height="370">']
    parts.append("<title>Run time with snapshots</title><style>text{font:12px system-ui,sans-serif;fill:#222}</style>")
    parts.append('<rect width="880" height="370" fill="#fff"/>')
    parts += panel(by_interval, "run time by snapshot interval (ms)", 0)
    parts += panel(by_processes, "run time by number of processes", 440)
    for index, way in enumerate(WAYS):
        at = 60 + index * 165
        parts.append(f'<line x1="{at}" y1="350" x2="{at + 24}" y2="350" stroke="{COLOURS[way]}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 30}" y="354">{way}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def preface(options: argparse.Namespace) -> list[str]:
    """What stands above the tables."""
    return [
        "# What snapshots cost the work",
        "",
        "Wall-clock seconds / CPU seconds (in brackets: snapshots completed meanwhile) of a word count over",
        f"{options.records:,} records on the local runtime, best of {options.rounds} interleaved rounds.",
        f"Made by `.venv/bin/python tests/bench/test_snapshot_effect.py --out docs --rounds {options.rounds}`;",
        "[checkpoints.md](checkpoints.md#what-snapshots-cost-the-work) explains each way and how to read the figures.",
        "`colours` is the agent's way: it pays for each message, and these messages do next to no work. What it adds to a gRPC",
        "call is measured in [agent-cost.md](agent-cost.md).",
        "",
        "![run time by interval and by number of processes](snapshot-effect.svg)",
    ]


def main() -> None:
    """Measure, print, and keep the tables and the plot if told where."""
    parser = argparse.ArgumentParser(description="What snapshots cost the work.")
    parser.add_argument("--out", type=Path, help="keep snapshot-effect.md and snapshot-effect.svg here")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    settings = [(interval, 2, options.records) for interval in INTERVALS_MS]
    by_interval = pooled(measure(settings, rounds=options.rounds, which=lambda ms, _: ms))
    by_processes = measure(
        [(50, parallelism, options.records) for parallelism in PARALLELISM],
        rounds=options.rounds,
        which=lambda _, parallelism: 3 * parallelism,
    )
    lines = [*table(by_interval, "interval, ms (6 processes)"), "", *table(by_processes, "processes (every 50 ms)")]
    print("\n".join(lines))
    if options.out:
        (options.out / "snapshot-effect.md").write_text("\n".join([*preface(options), "", *lines]) + "\n")
        (options.out / "snapshot-effect.svg").write_text(plot(by_interval, by_processes))


def test_no_way_of_taking_snapshots_changes_the_results() -> None:
    measured = measure([(5, 2, 4_000)], rounds=1, which=lambda ms, _: ms)
    assert {one.counted for one in measured.values()} == {4_000}
    assert measured["none", 5].snapshots == 0
    assert all(measured[way, 5].snapshots > 0 for way in WAYS[1:]), "no snapshot was taken while it ran"
    assert plot(measured, measured).startswith("<svg")
    assert len(table(measured, "x")) == 3


if __name__ == "__main__":
    main()
