"""Princeton COS 418, assignment 2: its worlds, played by the suite's own delivery rule, and its 21 golden snapshots.

The rule is told in the suite's README: a tick adds 1; then each server in string order delivers at most one message, the head
of the first outgoing link (sorted) whose head is due; every send draws a number r and is due at now + 1 + r.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stilltrue.fifo import (
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
from stilltrue.fifo.model import Effect
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.protocol.stamp import Stamp
from tests.external.cos418_beside import Beside

SUITE = "suites/cos418"
RUNS = {
    "2nodes-simple": ("2nodes", 1),
    "2nodes-message": ("2nodes", 1),
    "3nodes-simple": ("3nodes", 1),
    "3nodes-bidirectional-messages": ("3nodes", 1),
    "8nodes-sequential-snapshots": ("8nodes", 2),
    "8nodes-concurrent-snapshots": ("8nodes", 5),
    "10nodes": ("10nodes", 10),
}
"""The topology of each run, and how many snapshots it takes."""
Tokens = ChannelSnapshot[int, int]


@dataclass(slots=True)
class InTransit:
    """A message on a link: tokens with the sender's stamp, or a marker."""

    due: int
    tokens: int = 0
    stamp: Stamp | None = None
    marker: SnapshotId | None = None


class Servers:
    """The suite's world: servers with tokens, links with delays, and one real recorder of markers per server."""

    def __init__(self, topology: Topology, tokens: dict[ProcessName, int], draws: Iterator[int], watched: SnapshotId) -> None:
        self.topology, self.tokens, self.draws, self.now = topology, tokens, draws, 0
        self.links: dict[Channel, deque[InTransit]] = {one: deque() for one in topology.channels}
        self.pending: list[PendingSnapshot[int, int]] = []
        self.completed: dict[int, Tokens] = {}
        self.recorders = {
            name: MarkerRecorder[int, int](name, incoming=topology.incoming(name), outgoing=topology.outgoing(name))
            for name in topology.processes
        }
        self.beside = Beside(tokens, watched)
        """Recorders that know colours and no markers, which cut when the servers do for the snapshot ``watched``."""

    def send(self, source: ProcessName, target: ProcessName, tokens: int) -> None:
        """``source`` gives ``target`` some tokens."""
        on = Channel(source=source, target=target)
        self.tokens[source] -= tokens
        self.recorders[source].sent(on)
        stamp = self.beside.sent(on, tokens, left=self.tokens[source], now=self.now)
        self.links[on].append(InTransit(self.due(), tokens=tokens, stamp=stamp))

    def begin(self, server: ProcessName) -> None:
        """``server`` begins the next snapshot."""
        snapshot = SnapshotId(len(self.pending))
        self.pending.append(PendingSnapshot(snapshot, self.topology))
        self.obey(server, self.recorders[server].begins(snapshot, lambda: self.tokens[server]))

    def tick(self) -> None:
        """Time passes, and some messages come."""
        self.now += 1
        for server in self.topology.processes:
            for on in self.topology.outgoing(server):
                if self.links[on] and self.links[on][0].due <= self.now:
                    self.deliver(on, self.links[on].popleft())
                    break

    def deliver(self, on: Channel, head: InTransit) -> None:
        """One message comes."""
        recorder = self.recorders[on.target]
        if head.marker is not None:
            self.obey(on.target, recorder.marked(on, head.marker, lambda: self.tokens[on.target]))
        else:
            self.obey(on.target, recorder.received(on, head.tokens))
            self.tokens[on.target] += head.tokens
            self.beside.received(on, head.stamp, has=self.tokens[on.target], now=self.now)

    def obey(self, server: ProcessName, effects: tuple[Effect[int, int], ...]) -> None:
        """Do what the recorder of ``server`` asks for."""
        for effect in effects:
            match effect:
                case SendMarker():
                    self.links[effect.channel].append(InTransit(self.due(), marker=effect.snapshot))
                case Finished(record=record):
                    whole = self.pending[record.snapshot].adds(record)
                    if whole is not None:
                        self.completed[record.snapshot] = whole
                case Cut():
                    self.beside.cut(server, effect.snapshot, now=self.now)
                case other:
                    pytest.fail(f"unexpected {other}")

    def due(self) -> int:
        """When what is sent now is due."""
        return self.now + 1 + next(self.draws)


def played(suite: Path, run: str, watched: SnapshotId = SnapshotId(0)) -> Servers:
    """The servers of ``run`` after its last snapshot is complete."""
    servers = _servers(suite, RUNS[run][0], watched)
    for line in (suite / f"{run}.events").read_text().splitlines():
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
    return servers


def _servers(suite: Path, name: str, watched: SnapshotId) -> Servers:
    count, *lines = (suite / f"{name}.top").read_text().splitlines()
    tokens = {ProcessName(line.split()[0]): int(line.split()[1]) for line in lines[: int(count)]}
    links = [channel(*line.split()) for line in lines[int(count) :] if line and not line.startswith("#")]
    draws = (suite / "cos418_go_rand_intn5_draws.txt").read_text().split()
    return Servers(Topology.of(tokens, links), tokens, map(int, draws), watched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A published snapshot: its run and id, each server's tokens, and (source, target, tokens) of each message in order."""

    run: str
    name: str
    snapshot: SnapshotId
    states: dict[str, int]
    messages: tuple[tuple[str, str, int], ...]

    @property
    def total(self) -> int:
        """All tokens there are."""
        return sum(self.states.values()) + sum(tokens for *_, tokens in self.messages)


def goldens(suite: Path, run: str) -> list[Golden]:
    """The published snapshots of ``run``."""
    _, count = RUNS[run]
    names = [run] if count == 1 else [f"{run}{number}" for number in range(count)]
    return [_golden(run, suite / f"{name}.snap") for name in names]


def _golden(run: str, path: Path) -> Golden:
    number, *lines = path.read_text().split("\n")
    parts = [line.split() for line in lines if line.strip()]
    return Golden(
        run=run,
        name=path.name,
        snapshot=SnapshotId(int(number)),
        states={part[0]: int(part[1]) for part in parts if len(part) == 2},
        messages=tuple((p[0], p[1], int(p[2].removeprefix("token(").removesuffix(")"))) for p in parts if len(p) == 3),
    )
