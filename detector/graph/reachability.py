"""Frees parties by graph search, however long the path to them, where round-by-round reduction would take long.

Three kinds of parties are found, the last two by scipy's search:

- *Along paths*: if each party waits for one, those whose path ends at a free party (:mod:`detector.graph.functional_graph`).
- *By any target*: a party with one open wait, short of one target, is free as soon as any of its targets is. So everything
  reachable from the free parties through such waits is free.
- *Acyclic*: through open waits every path ends at a free party, at a held one, or in a cycle. A party whose paths all end at
  free parties is free, however many of its targets it needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Bools, Ints
from detector.graph.functional_graph import FREE, STUCK, UNKNOWN, follow
from detector.graph.matrix import scipy_sparse
from detector.graph.open_waits import OpenWaits

FREED_SHARE_MIN = 32
"""A search is worth repeating if it frees at least one in this many of the waiting parties."""
WAITS_MIN = 500
"""With fewer open waits than this, the worklist is faster than a search."""


def free_reachable(free: Bools, held: Bools | None, rest: OpenWaits) -> bool:
    """Free the parties that follow from ``free``, in place.

    Parameters
    ----------
    free : (P,) the free parties; updated in place.
    held : (P,) parties that are never freed; None if there are none.
    rest : the open waits of parties that are not free.

    Returns
    -------
    bool
        Whether enough parties were freed to make another search worthwhile.

    Examples
    --------
    >>> from detector.graph.columns import columns_of_lists
    >>> names = [f"p{at:04}" for at in range(WAITS_MIN + 1)]
    >>> chain = columns_of_lists(waiters=names[:-1], needs=[1] * WAITS_MIN, sizes=[1] * WAITS_MIN, among=names[1:])
    >>> free = np.arange(len(names)) == WAITS_MIN
    >>> free_reachable(free, None, OpenWaits.of(chain)), bool(free.all())
    (True, True)
    """
    waiter, short, indptr, targets = rest.waiter, rest.short, rest.indptr, rest.targets
    if len(waiter) < WAITS_MIN:
        return False
    if len(targets) == len(waiter) and rest.single():
        return FREED_SHARE_MIN * _free_along_paths(free, held, rest) >= len(waiter)
    freed = 0
    easy = short == 1
    if held is not None:
        easy &= ~held[waiter]
    if not rest.single():
        easy &= rest.waits_of_each()[waiter] == 1
    if 2 * np.count_nonzero(easy) > len(waiter):
        freed = _free_by_any_target(free, easy, waiter, indptr, targets)
    if FREED_SHARE_MIN * freed < len(waiter):
        freed += _free_acyclic(free, held, rest)
    return FREED_SHARE_MIN * freed >= len(waiter)


def _free_along_paths(free: Bools, held: Bools | None, rest: OpenWaits) -> int:
    """Free the parties whose path ends at a free party, where each party waits for one; returns their number."""
    after = np.arange(len(free))
    waiter = rest.waiter.astype(np.intp)
    after[waiter] = rest.targets
    fates = free.astype(np.int8)  # a party without waits is FREE, or STUCK if held
    fates[waiter] = UNKNOWN
    del waiter
    if held is not None:
        fates[held] = STUCK
    follow(after, fates)
    freed = (fates == FREE) & ~free
    free |= freed
    return int(np.count_nonzero(freed))


def _free_by_any_target(free: Bools, easy: Bools, waiter: Ints, indptr: Ints, targets: Ints) -> int:
    """Free everything reachable through the waits in ``easy`` (O,), which are short of one; returns the number freed."""
    if easy.all():
        sources, sinks = targets, np.repeat(waiter, np.diff(indptr))
    else:
        chosen = np.repeat(easy, np.diff(indptr))
        sources, sinks = targets[chosen], np.repeat(waiter[easy], np.diff(indptr)[easy])
    given = free.copy()
    given &= _among(targets, len(free))
    reached = _reached(sources, sinks, np.flatnonzero(given), len(free))
    before = np.count_nonzero(free)
    free |= reached
    return int(np.count_nonzero(free) - before)


def _free_acyclic(free: Bools, held: Bools | None, rest: OpenWaits) -> int:
    """Free the parties from which no path leads to a cycle or to a held party; returns their number."""
    waiter, indptr, targets, size = rest.waiter, rest.indptr, rest.targets, len(free)
    graph = _matrix(waiter, indptr, targets, size)
    components, labels = scipy_sparse().csgraph.connected_components(graph, directed=True, connection="strong")
    waiting = _among(waiter, size)
    blocked = ~free & ~waiting
    if held is not None:
        blocked |= held
    blocked |= graph.diagonal() > 0
    if components < size:
        blocked |= np.bincount(labels)[labels] > 1
    freed = waiting & ~free
    if blocked.any():
        freed &= ~_reached(targets, np.repeat(waiter, np.diff(indptr)), np.flatnonzero(blocked), size)
    free |= freed
    return int(np.count_nonzero(freed))


def _matrix(waiter: Ints, indptr: Ints, targets: Ints, size: int) -> Any:
    """The wait-for matrix, without duplicate entries: scipy's search for strong components may not terminate on these."""
    sizes = np.diff(indptr)
    if (waiter[1:] > waiter[:-1]).all():  # one wait per party, with distinct targets
        begins = np.zeros(size + 1, targets.dtype)
        begins[waiter + 1] = sizes
        np.cumsum(begins, out=begins)
        return scipy_sparse().csr_array((_ones(len(targets)), targets, begins), shape=(size, size))
    graph: Any = scipy_sparse().csr_array((np.ones(len(targets)), (np.repeat(waiter, sizes), targets)), shape=(size, size))
    graph.sum_duplicates()
    return graph


def _ones(count: int) -> NDArray[np.float64]:
    """Weights that take no memory: scipy's searches require float64 weights but do not read them."""
    return np.broadcast_to(np.float64(1.0), count)


def _among(parties: Ints, size: int) -> Bools:
    """(size,) mask of ``parties``."""
    among = np.zeros(size, np.bool_)
    among[parties.astype(np.intp)] = True
    return among


def _reached(sources: Ints, sinks: Ints, begins: Ints, size: int) -> Bools:
    """(size,) mask of the parties reachable from ``begins``, inclusive, along the edges from ``sources`` to ``sinks``.

    An extra node with edges to all ``begins`` makes it one search.
    """
    edges = scipy_sparse().csr_array((np.ones(len(sinks), np.int8), (sources, sinks)), shape=(size, size))
    indptr = np.append(edges.indptr, edges.indptr[-1] + len(begins)).astype(edges.indptr.dtype, copy=False)
    indices = np.concatenate((edges.indices, begins.astype(edges.indices.dtype, copy=False)))
    graph = scipy_sparse().csr_array((_ones(len(indices)), indices, indptr), shape=(size + 1, size + 1))
    order = scipy_sparse().csgraph.breadth_first_order(graph, size, directed=True, return_predecessors=False)
    reached = np.zeros(size + 1, np.bool_)
    reached[order] = True
    return reached[:size]
