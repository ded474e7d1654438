"""A dataflow graph: stages, edges between them, the vertices and channels they become, and the back edges.

A stage of parallelism n has the vertices ``stage-1`` to ``stage-n``; an edge has channels according to its routing. A vertex is
a process of the runtime, and has a process name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from detector.checkpoints.graph.depth_first import back_edges, components, reached
from stilltrue.fifo import Channel, Topology
from stilltrue.model import ProcessName

StageName = NewType("StageName", str)
"""The name of a stage, such as ``count``; its vertices are ``count-1``, ``count-2`` and so on."""


class Routing(Enum):
    """Which vertex of the target stage receives a record."""

    KEYED = "the vertex that owns the record's key"
    FORWARD = "the vertex with the sender's index"
    BROADCAST = "every vertex"
    REBALANCE = "round robin"


class Sharing(Enum):
    """How a stage's state is divided among its vertices, which determines whether it can be rescaled."""

    WHOLE = "each vertex has its own state, which cannot be divided"
    KEYED = "a mapping; each key belongs to the vertex that owns its key group"
    SPLIT = "a list of items that any vertex can take"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of the dataflow, run by ``parallelism`` vertices."""

    name: StageName
    parallelism: int = 1
    sharing: Sharing = Sharing.WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge along which records go from stage ``source`` to stage ``target``."""

    source: StageName
    target: StageName
    routing: Routing = Routing.FORWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowGraph:
    """A validated graph with its vertices, channels and back channels; built by :meth:`of`."""

    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    topology: Topology
    back: frozenset[Channel]
    stage_of: Mapping[ProcessName, StageName]

    @classmethod
    def of(cls, stages: Iterable[Stage], edges: Iterable[Edge]) -> DataflowGraph:
        """Validate and expand a graph.

        Raises ValueError for a duplicate stage name or edge, a parallelism below 1, an edge with an unknown end, a FORWARD edge
        between different parallelisms, or a stage that no source reaches.
        """
        known, joined = sorted(stages, key=lambda stage: stage.name), tuple(edges)
        _check(known, joined)
        pairs = [(edge.source, edge.target) for edge in joined]
        names = [stage.name for stage in known]
        sources = [name for name in names if all(target != name for _, target in pairs)]
        unreached = sorted(set(names) - reached(sources, pairs))
        if unreached:
            raise ValueError(f"no source reaches stage {unreached[0]}: add a stage without inputs")
        parallelism = {stage.name: stage.parallelism for stage in known}
        stage_of = {name: stage.name for stage in known for name in vertices_of(stage)}
        backwards = back_edges(sources, pairs)
        channels = {edge: _channels(edge, parallelism) for edge in joined}
        return cls(
            stages=tuple(known),
            edges=joined,
            topology=Topology.of(stage_of, (one for many in channels.values() for one in many)),
            back=frozenset(one for e, many in channels.items() if (e.source, e.target) in backwards for one in many),
            stage_of=stage_of,
        )

    def sources(self) -> tuple[ProcessName, ...]:
        """Return the vertices without inputs, sorted."""
        return tuple(name for name in self.topology.processes if not self.topology.incoming(name))

    def pipelines(self) -> tuple[tuple[ProcessName, ...], ...]:
        """Return the connected pipelines: sets of vertices with no channel between two sets, each sorted."""
        return components(self.topology.processes, [(one.source, one.target) for one in self.topology.channels])

    def pipeline_of(self, vertex: ProcessName) -> tuple[ProcessName, ...]:
        """Return the pipeline that ``vertex`` belongs to."""
        return next(one for one in self.pipelines() if vertex in one)


def vertices_of(stage: Stage) -> tuple[ProcessName, ...]:
    """Return the names of a stage's vertices, by index."""
    return tuple(ProcessName(f"{stage.name}-{index}") for index in range(1, stage.parallelism + 1))


def index_of(vertex: ProcessName) -> int:
    """Return the index of a vertex in its stage, from 0."""
    return int(vertex.rpartition("-")[2]) - 1


def _check(stages: Sequence[Stage], edges: Sequence[Edge]) -> None:
    parallelism = {stage.name: stage.parallelism for stage in stages}
    if len(parallelism) != len(stages):
        raise ValueError("duplicate stage name")
    if len({(edge.source, edge.target) for edge in edges}) != len(edges):
        raise ValueError("duplicate edge")
    for stage in stages:
        if stage.parallelism < 1:
            raise ValueError(f"stage {stage.name}: parallelism must be at least 1")
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in parallelism:
                raise ValueError(f"edge {edge.source} -> {edge.target} names {end}, which is not a stage")
        if edge.routing is Routing.FORWARD and parallelism[edge.source] != parallelism[edge.target]:
            raise ValueError(f"edge {edge.source} -> {edge.target} is FORWARD between different parallelisms")


def _channels(edge: Edge, parallelism: Mapping[StageName, int]) -> tuple[Channel, ...]:
    sources = vertices_of(Stage(name=edge.source, parallelism=parallelism[edge.source]))
    targets = vertices_of(Stage(name=edge.target, parallelism=parallelism[edge.target]))
    if edge.routing is Routing.FORWARD:
        return tuple(Channel(source=s, target=t) for s, t in zip(sources, targets, strict=True))
    return tuple(Channel(source=s, target=t) for s in sources for t in targets)
