"""Finds a small closed knot in a remainder: a set of parties that keep each other blocked without any others."""

from __future__ import annotations

import numpy as np

from detector.graph.columns import Bools, Ints
from detector.graph.remainder import RemainderGraph

SHRUNK_PARTIES_MAX = 64
"""A larger knot is returned whole: minimizing it takes quadratic time, and the result would be too large to read."""


def smallest_knot(graph: RemainderGraph, *, most: int) -> Ints:
    """Find the smallest bottom component, shrunk until no party can be removed.

    Parameters
    ----------
    graph : the remainder.
    most : return an empty array if no knot can have fewer parties than this; 0 means no limit.

    Returns
    -------
    Ints
        The parties of the knot, as sorted indices into the remainder.

    Notes
    -----
    A bottom component has no outgoing edge, so the open waits of its parties have all their blocked targets inside: it is
    closed. Every remainder has one, since each of its parties waits for another. The result is minimal, not always minimum.

    References
    ----------
    R. C. Holt, Some deadlock properties of computer systems, Computing Surveys 4 (1972) (knots).
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
    """(N,) mask of the parties in a bottom component, one whose parties wait for no party outside it."""
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
