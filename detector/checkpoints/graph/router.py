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
class _Route:
    """The channels of one edge from one vertex, by the targets' index."""

    edge: Edge
    channels: list[Channel]
    turn: int = 0


@dataclass(slots=True)
class Router:
    """Collects the records that one step of ``vertex`` emits, each with its channel."""

    job: Job
    vertex: ProcessName
    emitted: list[tuple[Channel, Record]] = field(default_factory=list)
    _routes: list[_Route] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.job.graph
        for edge in self.job.out_of(graph.stage_of[self.vertex]):
            mine = [one for one in graph.topology.outgoing(self.vertex) if graph.stage_of[one.target] == edge.target]
            self._routes.append(_Route(edge, sorted(mine, key=lambda one: index_of(one.target))))

    def emit(self, value: Value, to: str | None = None) -> None:
        """Send ``value`` to stage ``to``, or along every outgoing edge; ValueError if there is no such edge."""
        routes = [route for route in self._routes if to is None or route.edge.target == to]
        if not routes and to is not None:
            raise ValueError(f"there is no edge from {self.vertex} to stage {to}")
        for route in routes:
            self._emit_along(route, value)

    def taken(self) -> list[tuple[Channel, Record]]:
        """Return the records emitted since the previous call."""
        taken, self.emitted = self.emitted, []
        return taken

    def _emit_along(self, route: _Route, value: Value) -> None:
        match route.edge.routing:
            case Routing.KEYED:
                key = self.job.keys[route.edge.source, route.edge.target](value)
                self.emitted.append((route.channels[owner_of(key, len(route.channels))], Record(value=value, key=key)))
            case Routing.FORWARD:
                self.emitted.append((route.channels[0], Record(value=value)))
            case Routing.BROADCAST:
                self.emitted.extend((one, Record(value=value)) for one in route.channels)
            case Routing.REBALANCE:
                self.emitted.append((route.channels[route.turn], Record(value=value)))
                route.turn = (route.turn + 1) % len(route.channels)
