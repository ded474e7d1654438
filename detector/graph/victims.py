"""Chooses parties whose abort frees all others: a smallest set on small cores, a bounded approximation on large ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

import numpy as np

from detector.graph.columns import Floats, Ints, WaitColumns
from detector.graph.knots import bottom
from detector.graph.reduction import Reduction
from detector.graph.remainder import RemainderGraph, remainder_graph

EXACT_PARTIES_MAX = 24
TRIES_MAX = 3_000
"""Sets tried before the exact search stops, which takes about 50 ms."""
CANDIDATES_MAX = 16
"""The approximation takes the cheapest of this many most waited-for parties of a knot."""
SINGLE_ROUNDS = 8
"""Rounds of the approximation that take one party per knot; later rounds take more and more, to finish soon."""
LARGE_PARTIES_MIN = 1_000
"""With this many blocked parties, a round must free one in ``FREED_SHARE_MIN``, or the next takes eight times as many."""
FREED_SHARE_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Victims:
    """Parties whose abort frees the whole remainder; ``exact`` if no smaller set does.

    ``parties`` (sorted indices into the columns' names) is empty if the parties that must not be aborted make it impossible.
    """

    parties: Ints
    exact: bool


Cost = Callable[[Ints], Floats]
"""Maps parties to the cost of aborting each; infinity means never."""


def victims(columns: WaitColumns, reduction: Reduction, graph: RemainderGraph, cost: Cost) -> Victims:
    """Find parties whose abort frees the remainder of ``reduction``: their waits end, and they release what they hold.

    Parameters
    ----------
    columns, reduction, graph : the waits, their finished reduction, and its remainder.
    cost : decides between smallest sets; the cheapest is chosen.

    Returns
    -------
    Victims
        The set, and whether it is certain that no smaller one exists.

    Notes
    -----
    Finding a smallest set is NP-hard (for AND waits it is feedback vertex set). With at most ``EXACT_PARTIES_MAX`` parties on
    and between the cycles, sets are tried in order of size and cost. With more, each round takes the cheapest party of every
    bottom component, the most waited-for first among equals, and reduces again.

    References
    ----------
    R. M. Karp, Reducibility among combinatorial problems (1972) (feedback node set).

    Examples
    --------
    >>> from detector.graph.columns import columns_of_lists
    >>> from detector.graph.reduction import reduce
    >>> from detector.graph.remainder import remainder_graph
    >>> waits = columns_of_lists(waiters=["a", "b", "c", "c"], needs=[1] * 4, sizes=[1] * 4, among=["b", "c", "a", "b"])
    >>> reduction = reduce(waits)
    >>> found = victims(waits, reduction, remainder_graph(waits, reduction), lambda parties: np.ones(len(parties)))
    >>> waits.named(found.parties), found.exact
    (('b',), True)
    """
    inner = _between_cycles(graph)
    if len(inner) <= EXACT_PARTIES_MAX:
        chosen = _smallest(graph, inner, cost(graph.parties[inner]))
        if chosen is not None:
            return Victims(parties=graph.parties[chosen], exact=True)
    return _rounds(columns, reduction, graph, cost)


def _between_cycles(graph: RemainderGraph) -> Ints:
    """The parties on cycles and on paths between cycles; the others become free by themselves."""
    _, begins = np.unique(graph.labels[graph.cyclic], return_index=True)
    if np.count_nonzero(graph.cyclic) > EXACT_PARTIES_MAX:
        return np.flatnonzero(graph.cyclic)
    seen = graph.cyclic.copy()
    for start in np.flatnonzero(graph.cyclic)[begins].tolist():
        seen |= graph.matrix.reachable(start)
    return np.flatnonzero(seen)


def _smallest(graph: RemainderGraph, inner: Ints, prices: Floats) -> Ints | None:
    """The cheapest of the smallest subsets of ``inner`` that free all; None if not found within ``TRIES_MAX`` tries."""
    price = dict(zip(inner.tolist(), prices.tolist(), strict=True))
    bit = {party: 1 << at for at, party in enumerate(inner.tolist())}
    waits: list[tuple[int, int, int]] = []
    for wait in np.flatnonzero(np.isin(graph.waiter, inner)).tolist():
        targets = graph.targets_of(wait)
        short = len(targets) - int(graph.proof[wait]) + 1
        waits.append((bit[int(graph.waiter[wait])], sum(bit[target] for target in targets.tolist()), short))
    candidates = [party for party in inner.tolist() if np.isfinite(price[party])]
    tries = TRIES_MAX
    for size in range(1, len(candidates) + 1):
        sets = sorted(
            islice(combinations(candidates, size), tries + 1),
            key=lambda chosen: (sum(map(price.__getitem__, chosen)), chosen),
        )
        if len(sets) > tries:
            return None
        tries -= len(sets)
        for chosen in sets:
            if _frees(waits, sum(bit[party] for party in chosen), (1 << len(bit)) - 1):
                return np.asarray(chosen, np.int64)
    return np.empty(0, np.int64)


def _frees(waits: Sequence[tuple[int, int, int]], free: int, everyone: int) -> bool:
    """Whether the parties in ``free`` free all others; parties are bits, waits are (waiter, targets, number needed)."""
    while True:
        blocked = 0
        for waiter, targets, short in waits:
            if not waiter & free and (targets & free).bit_count() < short:
                blocked |= waiter
        if not blocked:
            return True
        if everyone & ~blocked == free:
            return False
        free = everyone & ~blocked


def _rounds(columns: WaitColumns, reduction: Reduction, graph: RemainderGraph, cost: Cost) -> Victims:
    """Each round, take a party of every bottom component (later more and more), until all are free."""
    aborted = np.zeros(len(columns.names), np.bool_)
    rounds, count = 0, 1
    while True:
        chosen = _of_each_knot(graph, cost, count)
        if not len(chosen):
            return Victims(parties=chosen, exact=False)
        released = np.zeros(len(columns.names), np.bool_)
        released[graph.parties[chosen]] = True
        aborted |= released
        reduction = reduction.further(released=released)
        if reduction.free.all():
            return Victims(parties=np.flatnonzero(aborted), exact=bool(aborted.sum() == 1))
        before = len(graph.parties)
        graph = remainder_graph(columns, reduction)
        rounds += 1
        if before >= LARGE_PARTIES_MIN and FREED_SHARE_MIN * (before - len(graph.parties)) < before:
            count *= 8
        elif rounds > SINGLE_ROUNDS:
            count *= 2


def _of_each_knot(graph: RemainderGraph, cost: Cost, count: int) -> Ints:
    """The ``count`` cheapest of the most waited-for parties in each bottom component.

    If none of these may be aborted, consider all parties of the bottom components, and finally all parties.
    """
    at_bottom = bottom(graph)
    wanted = np.bincount(graph.matrix.indices, minlength=len(graph.labels))
    choices: tuple[Ints, Ints] = (np.flatnonzero(at_bottom), np.arange(len(graph.labels)))
    for able, most in product(choices, (max(count, CANDIDATES_MAX), len(graph.labels))):
        candidates = able[np.lexsort((able, -wanted[able], graph.labels[able]))]
        candidates = _first_of_each(candidates, graph.labels, most)
        prices = cost(graph.parties[candidates])
        candidates, prices = candidates[np.isfinite(prices)], prices[np.isfinite(prices)]
        if len(candidates):
            order = np.lexsort((candidates, -wanted[candidates], prices, graph.labels[candidates]))
            return _first_of_each(candidates[order], graph.labels, count)
    return candidates


def _first_of_each(parties: Ints, labels: Ints, count: int) -> Ints:
    """The first ``count`` parties of each component, but never a whole component; ``parties`` are sorted by component."""
    own = labels[parties]
    begins = np.flatnonzero(np.concatenate(([True], own[1:] != own[:-1])))
    rank = np.arange(len(parties)) - np.repeat(begins, np.diff(np.append(begins, len(parties))))
    sizes = np.bincount(labels)[own]
    return parties[(rank < count) & (rank < np.maximum(sizes - 1, 1))]
