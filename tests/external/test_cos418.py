"""Princeton COS 418, assignment 2: the 21 published golden snapshots, exact, through the real marker recorder.

The suite's own delivery rule is told in its README: a tick adds 1; then each server in string order delivers at most one
message, the head of the first outgoing link (sorted) whose head is due; every send draws a number r and is due at now + 1 + r.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stilltrue.channels import (
    Channel,
    ChannelSnapshot,
    Cut,
    Finished,
    MarkerRecorder,
    PendingSnapshot,
    SendMarker,
    Topology,
    channel,
)
from stilltrue.channels.nouns import Effect
from stilltrue.model import ProcessName, SnapshotId

SUITE = Path(__file__).resolve().parents[3] / "shared" / "suites" / "cos418"
RUNS = {
    "2nodes-simple": ("2nodes", 1),
    "2nodes-message": ("2nodes", 1),
    "3nodes-simple": ("3nodes", 1),
    "3nodes-bidirectional-messages": ("3nodes", 1),
    "8nodes-sequential-snapshots": ("8nodes", 2),
    "8nodes-concurrent-snapshots": ("8nodes", 5),
    "10nodes": ("10nodes", 10),
}
Queued = int | SnapshotId
Tokens = ChannelSnapshot[int, int]


@pytest.fixture(scope="module", autouse=True)
def _suite() -> None:
    if not SUITE.is_dir():
        if os.environ.get("STILLTRUE_REQUIRE_SHARED") == "1":
            pytest.fail(f"the published COS 418 suite is not at {SUITE}")
        pytest.skip(f"the published COS 418 suite is not at {SUITE}")


@dataclass(slots=True)
class InTransit:
    due: int
    tokens: int = 0
    marker: SnapshotId | None = None


class Servers:
    """The suite's world: servers with tokens, links with delays, and one real recorder per server."""

    def __init__(self, topology: Topology, tokens: dict[ProcessName, int], draws: Iterator[int]) -> None:
        self.topology, self.tokens, self.draws, self.now = topology, tokens, draws, 0
        self.links: dict[Channel, deque[InTransit]] = {one: deque() for one in topology.channels}
        self.pending: list[PendingSnapshot[int, int]] = []
        self.completed: dict[int, Tokens] = {}
        self.recorders = {
            name: MarkerRecorder[int, int](name, incoming=topology.incoming(name), outgoing=topology.outgoing(name))
            for name in topology.processes
        }

    def send(self, source: ProcessName, target: ProcessName, tokens: int) -> None:
        on = Channel(source=source, target=target)
        self.tokens[source] -= tokens
        self.recorders[source].sent(on)
        self.links[on].append(InTransit(self.due(), tokens=tokens))

    def begin(self, server: ProcessName) -> None:
        snapshot = SnapshotId(len(self.pending))
        self.pending.append(PendingSnapshot(snapshot, self.topology))
        self.obey(self.recorders[server].begins(snapshot, lambda: self.tokens[server]))

    def tick(self) -> None:
        self.now += 1
        for server in self.topology.processes:
            for on in self.topology.outgoing(server):
                if self.links[on] and self.links[on][0].due <= self.now:
                    self.deliver(on, self.links[on].popleft())
                    break

    def deliver(self, on: Channel, head: InTransit) -> None:
        recorder = self.recorders[on.target]
        if head.marker is not None:
            self.obey(recorder.marked(on, head.marker, lambda: self.tokens[on.target]))
        else:
            self.obey(recorder.received(on, head.tokens))
            self.tokens[on.target] += head.tokens

    def obey(self, effects: tuple[Effect[int, int], ...]) -> None:
        for effect in effects:
            match effect:
                case SendMarker():
                    self.links[effect.channel].append(InTransit(self.due(), marker=effect.snapshot))
                case Finished(record=record):
                    whole = self.pending[record.snapshot].adds(record)
                    if whole is not None:
                        self.completed[record.snapshot] = whole
                case Cut():
                    pass
                case other:
                    pytest.fail(f"unexpected {other}")

    def due(self) -> int:
        return self.now + 1 + next(self.draws)


def servers_of(name: str) -> Servers:
    count, *lines = (SUITE / f"{name}.top").read_text().splitlines()
    tokens = {ProcessName(line.split()[0]): int(line.split()[1]) for line in lines[: int(count)]}
    links = [channel(*line.split()) for line in lines[int(count) :] if line and not line.startswith("#")]
    draws = (SUITE / "cos418_go_rand_intn5_draws.txt").read_text().split()
    return Servers(Topology.of(tokens, links), tokens, map(int, draws))


def play(servers: Servers, events: Path) -> None:
    for line in events.read_text().splitlines():
        match line.split():
            case ["send", source, target, tokens]:
                servers.send(ProcessName(source), ProcessName(target), int(tokens))
            case ["snapshot", server]:
                servers.begin(ProcessName(server))
            case ["tick", *count]:
                for _ in range(int(count[0]) if count else 1):
                    servers.tick()
            case other:
                assert not other or other[0].startswith("#"), line
    while len(servers.completed) < len(servers.pending):
        assert servers.now < 1000, "a snapshot never completed"
        servers.tick()


def golden(path: Path) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
    _id, *lines = path.read_text().split("\n")
    parts = [line.split() for line in lines if line.strip()]
    return {p[0]: int(p[1]) for p in parts if len(p) == 2}, [(p[0], p[1], p[2]) for p in parts if len(p) == 3]


def goldens(run: str, count: int) -> list[Path]:
    return [SUITE / f"{run}.snap"] if count == 1 else [SUITE / f"{run}{n}.snap" for n in range(count)]


@pytest.mark.parametrize("run", RUNS)
def test_golden_snapshots_of_the_run_are_exact(run: str) -> None:
    topology, count = RUNS[run]
    servers = servers_of(topology)
    total = sum(servers.tokens.values())
    play(servers, SUITE / f"{run}.events")
    assert sorted(servers.completed) == list(range(count))
    for path in goldens(run, count):
        snapshot = servers.completed[int(path.read_text().split()[0])]
        states, messages = golden(path)
        assert dict(snapshot.states) == states, path.name
        for one, tokens in snapshot.channels.items():
            expected = [text for source, target, text in messages if (source, target) == (one.source, one.target)]
            assert [f"token({n})" for n in tokens] == expected, f"{path.name}: {one}"
        assert {(one.source, one.target) for one in snapshot.channels} >= {m[:2] for m in messages}
        assert sum(snapshot.states.values()) + sum(map(sum, snapshot.channels.values())) == total


def test_the_suite_has_21_golden_snapshots_and_all_are_compared() -> None:
    assert len({path for run, (_, count) in RUNS.items() for path in goldens(run, count)}) == 21
    assert len(list(SUITE.glob("*.snap"))) == 21
