"""Selects the channels along which a vertex sends a record."""

from __future__ import annotations

from dataclasses import dataclass, field

from detector.checkpoints.graph.graph import Edge, Routing, index_of
from detector.checkpoints.graph.job import Job
from detector.checkpoints.graph.key_groups import owner_of
from detector.checkpoints.protocol.points import Record, Value
from stilltrue.fifo import Channel
from stilltrue.model import ProcessName


@dataclass(slots=True)
class _Way:
    """One edge seen from one vertex: its channels in the order of the targets' index."""

    edge: Edge
    channels: list[Channel]
    turn: int = 0


@dataclass(slots=True)
class Router:
    """Collects what one step of ``vertex`` emits, each record with the channel it goes along."""

    job: Job
    vertex: ProcessName
    emitted: list[tuple[Channel, Record]] = field(default_factory=list)
    _ways: list[_Way] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.job.graph
        for edge in self.job.out_of(graph.stage_of[self.vertex]):
            mine = [one for one in graph.topology.outgoing(self.vertex) if graph.stage_of[one.target] == edge.target]
            self._ways.append(_Way(edge, sorted(mine, key=lambda one: index_of(one.target))))

    def emit(self, value: Value, to: str | None = None) -> None:
        """Send ``value`` to stage ``to``, or along every outgoing edge; ValueError if there is no such edge."""
        ways = [way for way in self._ways if to is None or way.edge.target == to]
        if not ways and to is not None:
            raise ValueError(f"no edge leads from {self.vertex} to stage {to}")
        for way in ways:
            self._along(way, value)

    def taken(self) -> list[tuple[Channel, Record]]:
        """The records emitted since the previous call."""
        taken, self.emitted = self.emitted, []
        return taken

    def _along(self, way: _Way, value: Value) -> None:
        match way.edge.routing:
            case Routing.KEYED:
                key = self.job.keys[way.edge.source, way.edge.target](value)
                self.emitted.append((way.channels[owner_of(key, len(way.channels))], Record(value=value, key=key)))
            case Routing.FORWARD:
                self.emitted.append((way.channels[0], Record(value=value)))
            case Routing.BROADCAST:
                self.emitted.extend((one, Record(value=value)) for one in way.channels)
            case Routing.REBALANCE:
                self.emitted.append((way.channels[way.turn], Record(value=value)))
                way.turn = (way.turn + 1) % len(way.channels)
