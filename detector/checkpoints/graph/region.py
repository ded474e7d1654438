"""Which vertices must restart when one fails, and which are unaffected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from detector.checkpoints.graph.depth_first import reached
from detector.checkpoints.graph.graph import DataflowGraph
from stilltrue.model import ProcessName


class Scheme(Enum):
    """How much is restarted.

    CONNECTED is exact by itself: everything connected to the failed vertex returns to one point. UPSTREAM restarts only the
    vertices that feed it, up to the sources (Carbone et al. 2015, on failure recovery); vertices downstream stay ahead of the
    point and must drop repeated records by the sources' sequence numbers.
    """

    CONNECTED = "the whole connected pipeline"
    UPSTREAM = "the failed vertex and all that flows into it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The effect of one failure: the vertices that restart, those that must drop repeated records, and those unaffected."""

    failed: ProcessName
    restart: tuple[ProcessName, ...]
    drop_repeats: tuple[ProcessName, ...]
    untouched: tuple[ProcessName, ...]


def region(graph: DataflowGraph, failed: ProcessName, scheme: Scheme = Scheme.CONNECTED) -> Region:
    """Return the region of ``failed``; ValueError if there is no such vertex."""
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
