"""Finds the smallest directed cycle of a graph, as a witness that a person can check."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from detector.graph.columns import Bools, Ints
from detector.graph.matrix import Matrix, scipy_sparse

STEPS_MAX = 6_000
"""Bound on the edges examined one by one, to find a smaller cycle than the whole-graph search did."""
SMALL_PARTIES_MAX = 40
"""Up to this many parties, the first search always closes a cycle within ``STEPS_MAX`` edges."""


def smallest_cycle(graph: Matrix, within: Bools) -> Ints:
    """Find the smallest directed cycle of ``graph`` that starts at a party in ``within``.

    Parameters
    ----------
    graph : (N, N) the wait-for graph, with one entry where a party waits for another.
    within : (N,) the parties at which the cycle may start.

    Returns
    -------
    Ints
        The parties in the order of the cycle, from the lowest; empty if there is no cycle.

    Notes
    -----
    Cycles of length one and two are found directly. For longer ones, a breadth-first search runs from each party, lowest first
    in the smallest strong component, cut off at the best length so far. The result is exact if this takes fewer than
    ``STEPS_MAX`` edges, else the smallest cycle found by then; some cycle is always found. On small graphs only the searches
    from each party run.

    References
    ----------
    A. Itai and M. Rodeh, Finding a minimum circuit in a graph, SIAM Journal on Computing 7 (1978).

    Examples
    --------
    >>> ring = Matrix.of(np.array([0, 1, 2, 3]), np.array([1, 2, 0, 0]), 4)
    >>> smallest_cycle(ring, np.ones(4, np.bool_)).tolist()
    [0, 1, 2]
    """
    loops = np.flatnonzero(graph.loops() & within)
    if len(loops):
        return loops[:1]
    small = len(graph) <= SMALL_PARTIES_MAX
    pair = loops if small else _pair(graph.scipy(), within)
    if len(pair):
        return pair
    labels = graph.strong_components()
    sizes = np.bincount(labels)[labels] if len(labels) else labels
    starts = np.flatnonzero((sizes > 1) & within)
    starts = starts[np.argsort(sizes[starts], kind="stable")]
    if not len(starts):
        return starts
    best = [] if small else _cycle_through(graph.scipy(), int(starts[0]))
    lists = graph.indptr.tolist(), graph.indices.tolist(), labels.tolist()
    steps = STEPS_MAX
    for start in starts.tolist():
        if len(best) == (2 if small else 3) or steps <= 0:
            break
        found, steps = _shorter_cycle(lists, start, len(best) or len(starts) + 1, steps)
        best = found or best
    turn = best.index(min(best))
    return np.asarray(best[turn:] + best[:turn], np.int64)


def _pair(graph: Any, within: Bools) -> Ints:
    """The lowest two parties that wait for each other; empty if there are none."""
    both = graph.multiply(graph.T).tocoo()
    mutual = np.flatnonzero((both.row < both.col) & within[both.row])
    if not len(mutual):
        return mutual
    one = both.row[mutual].min()
    return np.asarray([one, both.col[mutual][both.row[mutual] == one].min()], np.int64)


def _cycle_through(graph: Any, start: int) -> list[int]:
    """The smallest cycle through ``start``, which must lie on one, by scipy's search over the whole graph."""
    order, parents = scipy_sparse().csgraph.breadth_first_order(graph, start, directed=True)
    closes = np.zeros(graph.shape[0], np.bool_)
    closes[graph.T.tocsr()[[start]].indices] = True
    walk = [int(order[closes[order]][0])]
    while walk[-1] != start:
        walk.append(int(parents[walk[-1]]))
    return walk[::-1]


def _shorter_cycle(lists: tuple[list[int], list[int], list[int]], start: int, below: int, steps: int) -> tuple[list[int], int]:
    """The smallest cycle through ``start`` that is shorter than ``below``, if any, and the remaining ``steps``."""
    indptr, indices, labels = lists
    parent, depth = {start: start}, {start: 1}
    todo = deque([start])
    while todo and steps > 0:
        here = todo.popleft()
        if depth[here] >= below:
            break
        targets = indices[indptr[here] : indptr[here + 1]]
        steps -= len(targets) + 1
        for target in targets:
            if target == start:
                return _path(parent, here, start), steps
            if target not in parent and labels[target] == labels[start]:
                parent[target], depth[target] = here, depth[here] + 1
                todo.append(target)
    return [], steps


def _path(parent: dict[int, int], last: int, start: int) -> list[int]:
    walk = [last]
    while walk[-1] != start:
        walk.append(parent[walk[-1]])
    return walk[::-1]
