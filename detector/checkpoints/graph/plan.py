"""The coordinator's plan for one point: which vertices begin it, which must acknowledge it, which have finished.

As in Flink (FLIP-147, checkpoints after tasks finished), a vertex begins by itself if it has no input from a running vertex
except on back edges.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from detector.checkpoints.graph.graph import DataflowGraph
from stilltrue.fifo import Topology
from stilltrue.model import ProcessName


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPlan:
    """The participants of one point, sorted; ``topology``: those that must acknowledge, and the channels between them."""

    begin: tuple[ProcessName, ...]
    acknowledge: tuple[ProcessName, ...]
    finished: tuple[ProcessName, ...]
    topology: Topology


def plan(graph: DataflowGraph, pipeline: Collection[ProcessName], finished: Collection[ProcessName]) -> PointPlan:
    """Return the plan for a point of ``pipeline`` after the vertices in ``finished`` have ended."""
    running = tuple(sorted(set(pipeline) - set(finished)))
    members = set(running)
    between = [one for one in graph.topology.channels if one.source in members and one.target in members]
    fed = {one.target for one in between if one not in graph.back}
    return PointPlan(
        begin=tuple(name for name in running if name not in fed),
        acknowledge=running,
        finished=tuple(sorted(set(pipeline) & set(finished))),
        topology=Topology.of(running, between),
    )
