"""Frees, in one search, parties that must become free in any order, however long the path to them.

Three kinds of parties are found without going round by round, the last two by a compiled search:

- *Along*: where each party waits for one, those whose path ends at a free party (:mod:`detector.graph.functional_graph`).
- *By one*: a party with one open wait, short of one target, is free as soon as any of its targets is. So everything reachable
  from the free parties through such waits is free.
- *On no cycle*: among the open waits every party waits for another, so a path ends at a free party, at a held one, or in a
  cycle. A party all of whose paths end at free parties is free, whatever it needs of its targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from detector.graph.columns import Bools, Ints
from detector.graph.functional_graph import FREE, STUCK, UNKNOWN, follow
from detector.graph.open_waits import OpenWaits

FREED_SHARE_MIN = 32
"""A search that frees fewer than one in this many of the waiting parties is not worth repeating."""
WAITS_MIN = 500
"""With fewer open waits than this, the worklist is faster than a search."""


def free_reachable(free: Bools, held: Bools | None, rest: OpenWaits) -> bool:
    """Free what follows from ``free``, in place.

    Parameters
    ----------
    free : (P,) the free parties; more are set.
    held : (P,) parties that are never freed; None: none.
    rest : the open waits, none of a free party.

    Returns
    -------
    bool
        Whether enough was freed for another search to be worthwhile.

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
        return FREED_SHARE_MIN * _along(free, held, rest) >= len(waiter)
    freed = 0
    easy = short == 1
    if held is not None:
        easy &= ~held[waiter]
    if not rest.single():
        easy &= rest.waits_of_each()[waiter] == 1
    if 2 * np.count_nonzero(easy) > len(waiter):
        freed = _by_one(free, easy, waiter, indptr, targets)
    if FREED_SHARE_MIN * freed < len(waiter):
        freed += _on_no_cycle(free, held, rest)
    return FREED_SHARE_MIN * freed >= len(waiter)


def _along(free: Bools, held: Bools | None, rest: OpenWaits) -> int:
    """Free the parties whose path, each waiting for one, ends at a free party; returns their number."""
    after = np.arange(len(free))
    waiter = rest.waiter.astype(np.intp)
    after[waiter] = rest.targets
    fates = free.astype(np.int8)  # a party without waits is FREE, or STUCK (held)
    fates[waiter] = UNKNOWN
    del waiter
    if held is not None:
        fates[held] = STUCK
    follow(after, fates)
    freed = (fates == FREE) & ~free
    free |= freed
    return int(np.count_nonzero(freed))


def _by_one(free: Bools, easy: Bools, waiter: Ints, indptr: Ints, targets: Ints) -> int:
    """Free everything reachable through the waits in ``easy`` (O,), short of one; returns the number freed."""
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


def _on_no_cycle(free: Bools, held: Bools | None, rest: OpenWaits) -> int:
    """Free the parties from which no path leads to a cycle or to a held party; returns their number."""
    waiter, indptr, targets, size = rest.waiter, rest.indptr, rest.targets, len(free)
    graph = _by_waiter(waiter, indptr, targets, size)
    components, labels = connected_components(graph, directed=True, connection="strong")
    waiting = _among(waiter, size)
    lasting = ~free & ~waiting
    if held is not None:
        lasting |= held
    lasting |= graph.diagonal() > 0
    if components < size:
        lasting |= np.bincount(labels)[labels] > 1
    freed = waiting & ~free
    if lasting.any():
        freed &= ~_reached(targets, np.repeat(waiter, np.diff(indptr)), np.flatnonzero(lasting), size)
    free |= freed
    return int(np.count_nonzero(freed))


def _by_waiter(waiter: Ints, indptr: Ints, targets: Ints, size: int) -> Any:
    """The wait-for matrix without duplicate entries, on which scipy's search for strong components may not terminate."""
    sizes = np.diff(indptr)
    if (waiter[1:] > waiter[:-1]).all():  # one wait per party, with distinct targets
        begins = np.zeros(size + 1, targets.dtype)
        begins[waiter + 1] = sizes
        np.cumsum(begins, out=begins)
        return csr_array((_ones(len(targets)), targets, begins), shape=(size, size))
    graph: Any = csr_array((np.ones(len(targets)), (np.repeat(waiter, sizes), targets)), shape=(size, size))
    graph.sum_duplicates()
    return graph


def _ones(count: int) -> NDArray[np.float64]:
    """Weights without memory: scipy's searches require float64 and do not read them."""
    return np.broadcast_to(np.float64(1.0), count)


def _among(parties: Ints, size: int) -> Bools:
    """(size,) whether each party is among ``parties``."""
    among = np.zeros(size, np.bool_)
    among[parties.astype(np.intp)] = True
    return among


def _reached(sources: Ints, sinks: Ints, begins: Ints, size: int) -> Bools:
    """(size,) what is reachable from ``begins``, these included, along the edges from ``sources`` to ``sinks``."""
    turned = csr_array((np.ones(len(sinks), np.int8), (sources, sinks)), shape=(size, size))
    ends = np.append(turned.indptr, turned.indptr[-1] + len(begins)).astype(turned.indptr.dtype, copy=False)
    ways = np.concatenate((turned.indices, begins.astype(turned.indices.dtype, copy=False)))
    graph = csr_array((_ones(len(ways)), ways, ends), shape=(size + 1, size + 1))
    order = breadth_first_order(graph, size, directed=True, return_predecessors=False)
    reached = np.zeros(size + 1, np.bool_)
    reached[order] = True
    return reached[:size]
