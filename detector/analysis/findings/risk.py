"""Finds potential deadlocks: cycles of services that hold a worker while they wait for the next one's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from detector.archive.rows.schema import REAL, TEXT, WHOLE

if TYPE_CHECKING:
    import networkx as nx

CIRCLE_SERVICES_MAX = 5
CIRCLES_MAX = 20_000
RISKS = pa.schema([("services", pa.list_(TEXT)), ("score", REAL), ("full", pa.list_(REAL)), ("samples", WHOLE)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A circle of services and how likely all its pools are full at one instant; ``samples``: of its rarest calls."""

    services: tuple[str, ...]
    score: float
    full: tuple[float, ...]
    samples: int


def risks(
    edges: Iterable[tuple[str, str, int]], pools: Mapping[str, tuple[int | None, float, float]], most: int = 50
) -> list[Risk]:
    """Rank the circles, the likeliest first.

    Parameters
    ----------
    edges : ``(service, callee, samples)``: the service was seen holding a worker while it called.
    pools : by service, its bounded pool: size, mean busy workers, the share of snapshots in which none was free.

    Notes
    -----
    A circle can close only when every one of its pools is full. With L busy workers on average (Little's law: rate times
    length of a call) and ``size`` of them, a pool of independent callers is full with the probability that Erlang's B formula
    gives; where history shows it full more often, that counts. The pools are taken as independent, so ``score`` ranks; it
    is no forecast. Unbounded pools cannot be full. At most ``CIRCLES_MAX`` circles of up to ``CIRCLE_SERVICES_MAX`` services
    are examined.
    """
    bounded = {name: full_probability(size, busy, full) for name, (size, busy, full) in pools.items() if size}
    between = [edge for edge in sorted(edges) if edge[0] in bounded and edge[1] in bounded]
    if not between:
        return []
    import networkx as nx  # noqa: PLC0415 - it takes half a second to load

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from((service, callee, {"samples": samples}) for service, callee, samples in between)
    circles = islice(nx.simple_cycles(graph, length_bound=CIRCLE_SERVICES_MAX), CIRCLES_MAX)
    found = [_risk(_turned(circle), graph, bounded) for circle in circles]
    return sorted(found, key=lambda risk: (-risk.score, -risk.samples, risk.services))[:most]


def full_probability(size: int, busy_mean: float, full_share: float) -> float:
    """How likely a pool is full: as often as it was seen, or as Erlang's B formula says, whichever is more."""
    return max(full_share, erlang_b(size, min(busy_mean, size)))


def erlang_b(servers: int, load: float) -> float:
    """The share of time in which all of ``servers`` are busy at an offered load of ``load`` (A. K. Erlang, 1917).

    Examples
    --------
    >>> round(erlang_b(2, 1.0), 3)
    0.2
    """
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked


def _turned(circle: list[str]) -> tuple[str, ...]:
    """From its first name on, so that equal circles are written alike."""
    start = circle.index(min(circle))
    return tuple(circle[start:] + circle[:start])


def _risk(services: tuple[str, ...], graph: nx.DiGraph[str], bounded: Mapping[str, float]) -> Risk:
    full = tuple(bounded[name] for name in services)
    samples: list[Any] = [graph.edges[pair]["samples"] for pair in pairwise((*services, services[0]))]
    return Risk(services=services, score=prod(full), full=full, samples=min(samples))
