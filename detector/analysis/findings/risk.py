"""Finds potential deadlocks: cycles of services that hold a worker while they wait for the next one's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from detector.archive.rows.schema import REAL, TEXT, WHOLE

if TYPE_CHECKING:
    import networkx as nx

CYCLE_SERVICES_MAX = 5
RISKS_MAX = 50
CYCLES_MAX = 20_000
RISKS = pa.schema(
    [("services", pa.list_(TEXT)), ("score", REAL), ("full", pa.list_(REAL)), ("samples", WHOLE), ("change", TEXT)]
)
BETTER = 0.1
"""By what a pool's share of full time is multiplied by the growth that is advised."""
GROWTH_MAX = 4
"""A pool is never advised to grow beyond this multiple of its size: then only changing the calls helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A cycle of services and how likely all its pools are full at one instant; ``samples``: of its rarest calls.

    ``change`` says what would take the risk away, and what would lessen it.
    """

    services: tuple[str, ...]
    score: float
    full: tuple[float, ...]
    samples: int
    change: str = ""


def risks(edges: Iterable[tuple[str, str, int]], pools: Mapping[str, tuple[int | None, float, float]]) -> list[Risk]:
    """Rank the cycles, the likeliest first, ``RISKS_MAX`` at most.

    Parameters
    ----------
    edges : ``(service, callee, samples)``: the service was seen holding a worker while it called.
    pools : by service, its bounded pool: size, mean busy workers, the share of snapshots in which none was free.

    Notes
    -----
    A cycle can close only when every one of its pools is full. With L busy workers on average (Little's law: rate times
    length of a call) and ``size`` of them, a pool of independent callers is full with the probability that Erlang's B formula
    gives; where history shows it full more often, that counts. The pools are taken as independent, so ``score`` ranks; it
    is no forecast. Unbounded pools cannot be full. At most ``CYCLES_MAX`` cycles of up to ``CYCLE_SERVICES_MAX`` services
    are examined.
    """
    bounded = {name: full_probability(size, busy, full) for name, (size, busy, full) in pools.items() if size}
    between = [edge for edge in sorted(edges) if edge[0] in bounded and edge[1] in bounded]
    if not between:
        return []
    import networkx as nx  # noqa: PLC0415 - it takes half a second to load

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from((service, callee, {"samples": samples}) for service, callee, samples in between)
    cycles = islice(nx.simple_cycles(graph, length_bound=CYCLE_SERVICES_MAX), CYCLES_MAX)
    found = [_risk(_turned(cycle), graph, bounded, pools) for cycle in cycles]
    return sorted(found, key=lambda risk: (-risk.score, -risk.samples, risk.services))[:RISKS_MAX]


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


def _turned(cycle: list[str]) -> tuple[str, ...]:
    """From its first name on, so that equal cycles are written alike."""
    start = cycle.index(min(cycle))
    return tuple(cycle[start:] + cycle[:start])


def _risk(
    services: tuple[str, ...],
    graph: nx.DiGraph[str],
    bounded: Mapping[str, float],
    pools: Mapping[str, tuple[int | None, float, float]],
) -> Risk:
    full = tuple(bounded[name] for name in services)
    calls = list(pairwise((*services, services[0])))
    samples: list[Any] = [graph.edges[pair]["samples"] for pair in calls]
    rarest = min(range(len(calls)), key=samples.__getitem__)
    change = "; or ".join((_without(*calls[rarest]), *_growths(services, pools)))
    return Risk(services=services, score=prod(full), full=full, samples=samples[rarest], change=change)


def _without(service: str, callee: str) -> str:
    """What opens the cycle for good, at its rarest call."""
    return f"let {service} hold no worker while it calls {callee}, or give {callee} a separate pool for these calls"


def _growths(services: tuple[str, ...], pools: Mapping[str, tuple[int | None, float, float]]) -> Iterator[str]:
    """The growth of one pool that lessens the risk with the fewest workers, if any does.

    Of a pool that was seen full more often than its load explains, nothing is said: more workers may be as stuck as those.
    """
    found = []
    for name in services:
        size, busy, full = pools[name]
        now = erlang_b(size, min(busy, size)) if size else 0.0
        if size and full <= now:
            fits = (more for more in range(size + 1, GROWTH_MAX * size + 1) if erlang_b(more, min(busy, size)) <= BETTER * now)
            found += [(more - size, name, more, size) for more in islice(fits, 1)]
    for _, name, more, size in sorted(found)[:1]:
        yield f"give {name} {more} workers ({size} now): its pool is then full a tenth as often at this load"
