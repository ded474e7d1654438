"""The interfaces that users implement (sources and operators), and the job that attaches them to a graph.

An operator's ``handle`` is one atomic step: its changes of state and its output belong together, and no point is taken in the
middle of it. States are plain values (:data:`detector.checkpoints.protocol.points.Value`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, StageName
from detector.checkpoints.protocol.points import CompletedPoint, Value

Emit = Callable[..., None]
"""``emit(value, to="stage")`` sends a record; without ``to``, along every outgoing edge."""

KeyOf = Callable[[Value], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexContext:
    """The position of a vertex: its stage, its index from 0, and the parallelism of the stage."""

    stage: StageName
    index: int
    parallelism: int


class Stateful(Protocol):
    """The common part of sources and operators."""

    def state(self) -> Value:
        """Return the current state as a value that later changes do not affect."""
        ...

    def restore(self, state: Value) -> None:
        """Resume from a value that :meth:`state` returned."""
        ...


class Source(Stateful, Protocol):
    """A source of records that can be rewound, which makes restarts exact."""

    def read(self) -> Iterable[Value] | None:
        """Return the next records (none if there are none yet), or None at the end of a bounded source."""
        ...


@runtime_checkable
class Operator(Stateful, Protocol):
    """A step that receives and emits records."""

    def handle(self, value: Value, emit: Emit) -> None:
        """Process one record."""
        ...


@runtime_checkable
class Commits(Protocol):
    """A sink that publishes its results only when a completed point covers them."""

    def committed(self, point: CompletedPoint) -> None:
        """``point`` is complete: records before its barrier will never be rolled back."""
        ...


Made = Source | Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A graph, a factory for each stage's vertices, and the key functions of the KEYED edges."""

    graph: DataflowGraph
    make: Mapping[StageName, Callable[[VertexContext], Made]]
    keys: Mapping[tuple[StageName, StageName], KeyOf] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stage in self.graph.stages:
            if stage.name not in self.make:
                raise ValueError(f"no factory for stage {stage.name}")
        for edge in self.graph.edges:
            if edge.routing is Routing.KEYED and (edge.source, edge.target) not in self.keys:
                raise ValueError(f"edge {edge.source} -> {edge.target} is KEYED and has no key")

    def out_of(self, stage: StageName) -> tuple[Edge, ...]:
        """Return the edges that leave ``stage``, sorted by target."""
        return tuple(sorted((e for e in self.graph.edges if e.source == stage), key=lambda e: e.target))
