"""The smallest directed cycle of a graph, for a witness that a person can check."""

from __future__ import annotations

from collections import deque

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.graph.columns import Bools, Ints

STEPS_MAX = 20_000
"""Edges looked at before the smallest cycle found so far is taken."""


def smallest_cycle(graph: csr_array, within: Bools) -> Ints:
    """The smallest directed cycle of ``graph`` through parties in ``within``; empty when there is none.

    Parameters
    ----------
    graph : (N, N) an entry where a party waits for another.
    within : (N,) the parties that may be on it.

    Returns
    -------
    Ints
        The parties in the order of the cycle, from the lowest. Of several smallest, the one with the lowest start.

    Notes
    -----
    One breadth-first search from each party, lowest first, each cut off at the best length so far: exact where that takes
    fewer than ``STEPS_MAX`` edges, else the smallest found within them. The components bound the search and are visited
    from the smallest, so a bound that is reached still leaves a short cycle.
    """
    _, labels = connected_components(graph, directed=True, connection="strong")
    sizes = np.bincount(labels, minlength=1)[labels] if len(labels) else labels
    loops = np.flatnonzero((graph.diagonal() > 0) & within)
    if len(loops):
        return loops[:1]
    starts = np.flatnonzero((sizes > 1) & within)
    starts = starts[np.argsort(sizes[starts], kind="stable")]
    best: list[int] = []
    steps = STEPS_MAX
    for start in starts.tolist():
        if len(best) == 2 or steps <= 0:
            break
        found, looked = _through(graph, labels, start, len(best))
        steps -= looked
        best = found or best
    turn = best.index(min(best)) if best else 0
    return np.asarray(best[turn:] + best[:turn], np.int64)


def _through(graph: csr_array, labels: Ints, start: int, below: int) -> tuple[list[int], int]:
    """The smallest cycle through ``start`` shorter than ``below`` (0: of any length), and the edges looked at."""
    indptr, indices = graph.indptr, graph.indices
    parent = {start: start}
    depth = {start: 1}
    todo = deque([start])
    looked = 0
    while todo:
        here = todo.popleft()
        if below and depth[here] >= below:
            break
        targets = indices[indptr[here] : indptr[here + 1]]
        looked += len(targets) + 1
        for target in np.sort(targets[labels[targets] == labels[start]]).tolist():
            if target == start:
                return _back(parent, here, start), looked
            if target not in parent:
                parent[target], depth[target] = here, depth[here] + 1
                todo.append(target)
    return [], looked


def _back(parent: dict[int, int], last: int, start: int) -> list[int]:
    walk = [last]
    while walk[-1] != start:
        walk.append(parent[walk[-1]])
    return walk[::-1]
