"""The reduction's leap: frees in one search whoever must become free in any order, however long the way.

Two kinds of parties are known without going round by round, both with a search in compiled code:

- *By one*: a party with one open wait that is short of one target is free when any of its targets is. So all that is
  reached from the free parties through such waits is free.
- *On no cycle*: among the open waits every party waits for another, so a way along them ends at a free party, at one that
  is held, or goes round for ever. A party whose every way ends at free parties is free, whatever it needs of its targets.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from detector.graph.columns import Bools, Ints

FREED_SHARE_MIN = 32
"""A leap that frees fewer than one in this many of the waiting parties is not worth another."""
WAITS_MIN = 4_000
"""With fewer open waits than this, going party by party is faster than a search."""


def leap(free: Bools, owed: Ints, waiter: Ints, short: Ints, indptr: Ints, targets: Ints) -> bool:
    """Free what follows from ``free`` (in place); whether it was worth it, so that another leap may be.

    The columns are those of a :class:`~detector.graph.reduction.Reduction` none of whose open waits is over; the parties
    among the targets that are free have not been counted in ``short``.
    """
    if len(waiter) < WAITS_MIN:
        return False
    freed = _by_one(free, owed, waiter, short, indptr, targets)
    if FREED_SHARE_MIN * freed < len(waiter):
        freed += _on_no_cycle(free, waiter, indptr, targets)
    return FREED_SHARE_MIN * freed >= len(waiter)


def _by_one(free: Bools, owed: Ints, waiter: Ints, short: Ints, indptr: Ints, targets: Ints) -> int:
    """Free all that is reached through waits short of one; how many parties that frees."""
    easy = (short == 1) & (owed[waiter] == 1)
    chosen = np.repeat(easy, np.diff(indptr))
    waiters = np.repeat(waiter, np.diff(indptr))[chosen]
    reached = _reached(targets[chosen], waiters, np.unique(targets[free[targets]]), len(free))
    before = np.count_nonzero(free)
    free |= reached
    return int(np.count_nonzero(free) - before)


def _on_no_cycle(free: Bools, waiter: Ints, indptr: Ints, targets: Ints) -> int:
    """Free all from whom no way leads to a cycle or to a party that is held; how many parties that frees."""
    size = len(free)
    waiters = np.repeat(waiter, np.diff(indptr))
    graph = csr_array((np.ones(len(targets), np.int8), (waiters, targets)), shape=(size, size))
    graph.sum_duplicates()  # scipy's search for strong components may never end on entries given twice
    graph.data[:] = 1
    _, labels = connected_components(graph, directed=True, connection="strong")
    waiting = np.zeros(size, np.bool_)
    waiting[waiter] = True
    lasting = (np.bincount(labels)[labels] > 1) | (graph.diagonal() > 0) | (~free & ~waiting)
    stuck = _reached(targets, waiters, np.flatnonzero(lasting), size)
    freed = waiting & ~free & ~stuck
    free |= freed
    return int(np.count_nonzero(freed))


def _reached(sources: Ints, sinks: Ints, begins: Ints, size: int) -> Bools:
    """(size,) what is reached from ``begins``, themselves included, along the edges from ``sources`` to ``sinks``."""
    rows = np.concatenate((sources, np.full(len(begins), size, sources.dtype)))
    columns = np.concatenate((sinks, begins.astype(sinks.dtype, copy=False)))
    graph = csr_array((np.ones(len(rows), np.float64), (rows, columns)), shape=(size + 1, size + 1))
    order = breadth_first_order(graph, size, directed=True, return_predecessors=False)
    reached = np.zeros(size + 1, np.bool_)
    reached[order] = True
    return reached[:size]
