"""When a vertex fails: which vertices must restart with it, and which go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from detector.checkpoints.graph.depth_first import reached
from detector.checkpoints.graph.graph import DataflowGraph
from stilltrue.model import ProcessName


class Scheme(Enum):
    """How much restarts.

    CONNECTED is exact by itself: all that is connected with the failed vertex goes back to one point. UPSTREAM restarts only
    what feeds it, up to the sources (Carbone et al. 2015, on failure recovery); those downstream stay ahead of the point
    and must drop what they have had already, by the sources' sequence numbers.
    """

    CONNECTED = "the whole connected pipeline"
    UPSTREAM = "the failed vertex and all that flows into it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What one failure means: the failed vertex, what restarts (it included), who must drop repeats, what is left alone."""

    failed: ProcessName
    restart: tuple[ProcessName, ...]
    drop_repeats: tuple[ProcessName, ...]
    untouched: tuple[ProcessName, ...]


def region(graph: DataflowGraph, failed: ProcessName, scheme: Scheme = Scheme.CONNECTED) -> Region:
    """Compute the region of ``failed``; ValueError if there is no such vertex."""
    if failed not in graph.topology.processes:
        raise ValueError(f"there is no vertex {failed}")
    pairs = [(one.source, one.target) for one in graph.topology.channels]
    restart = set(graph.pipeline_of(failed))
    if scheme is Scheme.UPSTREAM:
        restart = reached([failed], [(target, source) for source, target in pairs])
    fed = {target for source, target in pairs if source in restart and target not in restart}
    return Region(
        failed=failed,
        restart=tuple(sorted(restart)),
        drop_repeats=tuple(sorted(fed)),
        untouched=tuple(name for name in graph.topology.processes if name not in restart and name not in fed),
    )
