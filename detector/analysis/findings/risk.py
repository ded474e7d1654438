"""Finds potential deadlocks: cycles of services that each hold a worker while waiting for the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from detector.archive.rows.schema import FLOAT64, INT64, STRING

if TYPE_CHECKING:
    import networkx as nx

CYCLE_SERVICES_MAX = 5
RISKS_MAX = 50
CYCLES_MAX = 20_000
RISKS = pa.schema(
    [("services", pa.list_(STRING)), ("score", FLOAT64), ("full", pa.list_(FLOAT64)), ("samples", INT64), ("change", STRING)]
)
BETTER = 0.1
"""The suggested growth of a pool reduces its share of full time at least to this fraction."""
GROWTH_MAX = 4
"""Largest multiple of a pool's size that is suggested; beyond it only changing the calls helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A cycle of services, and how likely it is that all its pools are full at once.

    ``samples`` counts its rarest call. ``change`` suggests how to remove or reduce the risk.
    """

    services: tuple[str, ...]
    score: float
    full: tuple[float, ...]
    samples: int
    change: str = ""


def risks(edges: Iterable[tuple[str, str, int]], pools: Mapping[str, tuple[int | None, float, float]]) -> list[Risk]:
    """Rank the cycles, the likeliest first, at most ``RISKS_MAX``.

    Parameters
    ----------
    edges : ``(service, callee, samples)``: the service held a worker while calling the callee.
    pools : each service's pool: size, mean number of busy workers, share of snapshots in which none was free.

    Notes
    -----
    A cycle can close only while all its pools are full. With independent callers and a mean of L busy workers (Little's law:
    call rate times call duration), Erlang's B formula gives the probability that a pool is full; if history shows it full more
    often, history counts. Pools are assumed to be independent, so ``score`` is for ranking, not a forecast. Unbounded pools are
    never full. At most ``CYCLES_MAX`` cycles of up to ``CYCLE_SERVICES_MAX`` services are examined.
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
    """Return the probability that a pool is full: the observed share or Erlang's B formula, whichever is greater."""
    return max(full_share, erlang_b(size, min(busy_mean, size)))


def erlang_b(servers: int, load: float) -> float:
    """Return the share of time in which all ``servers`` are busy at an offered load of ``load`` (A. K. Erlang, 1917).

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
    """Rotate a cycle to its smallest name, so that equal cycles are written alike."""
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
    """Suggest how to break the cycle at its rarest call."""
    return f"let {service} hold no worker while it calls {callee}, or give {callee} a separate pool for these calls"


def _growths(services: tuple[str, ...], pools: Mapping[str, tuple[int | None, float, float]]) -> Iterator[str]:
    """Suggest the pool that needs the fewest additional workers to reduce the risk, if there is one.

    A pool that was full more often than its load explains is skipped: additional workers may get stuck as well.
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
