"""The smallest closed knot found in a remainder: a set of parties that keep each other stuck, all by themselves."""

from __future__ import annotations

import numpy as np

from detector.graph.columns import Bools, Ints
from detector.graph.remainder import RemainderGraph

SHRUNK_PARTIES_MAX = 64
"""A larger knot is given whole: to leave out its parties one by one would cost its square, and nobody would read it."""


def smallest_knot(graph: RemainderGraph, *, most: int) -> Ints:
    """The smallest bottom component, shrunk until no party of it can be left out.

    Parameters
    ----------
    graph : the remainder.
    most : give up (empty) when a knot cannot be smaller than this many parties; 0 is no limit.

    Notes
    -----
    A bottom component has no edge out of it, so the open waits of its parties have all their stuck targets inside: it is
    closed. Every remainder has one, since each of its parties waits for another.
    """
    labels, sizes = graph.labels, np.bincount(graph.labels)
    inside = bottom(graph)
    smallest = sizes[labels[inside]].min()
    lowest = int(np.flatnonzero(inside & (sizes[labels] == smallest))[0])
    members = labels == labels[lowest]
    if most and (most <= 2 or smallest > SHRUNK_PARTIES_MAX):
        return np.empty(0, np.int64)
    if smallest <= SHRUNK_PARTIES_MAX:
        for party in np.flatnonzero(members)[::-1].tolist():
            tried = members.copy()
            tried[party] = False
            closed = _closed(graph, tried)
            if closed.any():
                members = closed
    return np.flatnonzero(members)


def bottom(graph: RemainderGraph) -> Bools:
    """(N,) whether the party's component is a bottom one: nobody in it waits for anybody outside."""
    labels, matrix = graph.labels, graph.matrix
    waiters = np.repeat(labels, np.diff(matrix.indptr))
    leaves = np.ones(int(labels.max()) + 1, np.bool_)
    leaves[waiters[waiters != labels[matrix.indices]]] = False
    at_bottom: Bools = leaves[labels]
    return at_bottom


def _closed(graph: RemainderGraph, members: Bools) -> Bools:
    """The largest closed set inside ``members``."""
    while True:
        inside = np.zeros(len(graph.targets) + 1, np.int64)
        np.cumsum(members[graph.targets], out=inside[1:])
        kept_open = np.diff(inside[graph.indptr]) >= graph.proof
        proven = np.zeros(len(members), np.bool_)
        proven[graph.waiter[kept_open]] = True
        proven &= members
        if bool(np.all(proven == members)):
            return members
        members = proven
