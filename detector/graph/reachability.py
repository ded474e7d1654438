"""The reduction's leap: frees in one search whoever must become free in any order, however long the way.

Three kinds of parties are known without going round by round, the latter two with a search in compiled code:

- *Along*: where everybody waits for one, whoever's way ends at a free party (:mod:`detector.graph.functional_graph`).
- *By one*: a party with one open wait that is short of one target is free when any of its targets is. So all that is
  reached from the free parties through such waits is free.
- *On no cycle*: among the open waits every party waits for another, so a way along them ends at a free party, at one that
  is held, or goes round for ever. A party whose every way ends at free parties is free, whatever it needs of its targets.
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
"""A leap that frees fewer than one in this many of the waiting parties is not worth another."""
WAITS_MIN = 500
"""With fewer open waits than this, going party by party is faster than a search."""


def free_reachable(free: Bools, held: Bools | None, rest: OpenWaits) -> bool:
    """Free what follows from ``free`` (in place); whether it was worth it, so that another leap may be.

    Parameters
    ----------
    free : (P,) who is free.
    held : (P,) who is not to be freed, whatever ends; None: nobody.
    rest : the open waits, none of a party that is free.
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
    """Free all whose way, on which each waits for one, ends at a free party; how many parties that frees."""
    after = np.arange(len(free))
    waiter = rest.waiter.astype(np.intp)
    after[waiter] = rest.targets
    fates = free.astype(np.int8)  # who waits for nothing is FREE, or STUCK (held)
    fates[waiter] = UNKNOWN
    del waiter
    if held is not None:
        fates[held] = STUCK
    follow(after, fates)
    freed = (fates == FREE) & ~free
    free |= freed
    return int(np.count_nonzero(freed))


def _by_one(free: Bools, easy: Bools, waiter: Ints, indptr: Ints, targets: Ints) -> int:
    """Free all that is reached through the waits in ``easy`` (O,), short of one; how many parties that frees."""
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
    """Free all from whom no way leads to a cycle or to a party that is held; how many parties that frees."""
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
    """Who waits for whom, a row a party, no entry twice: scipy's search for strong components may never end on those."""
    sizes = np.diff(indptr)
    if (waiter[1:] > waiter[:-1]).all():  # nobody waits twice, and a wait's targets are different
        begins = np.zeros(size + 1, targets.dtype)
        begins[waiter + 1] = sizes
        np.cumsum(begins, out=begins)
        return csr_array((_ones(len(targets)), targets, begins), shape=(size, size))
    graph: Any = csr_array((np.ones(len(targets)), (np.repeat(waiter, sizes), targets)), shape=(size, size))
    graph.sum_duplicates()
    return graph


def _ones(count: int) -> NDArray[np.float64]:
    """Weights that take no memory: scipy's searches ask for float64 and do not read them."""
    return np.broadcast_to(np.float64(1.0), count)


def _among(parties: Ints, size: int) -> Bools:
    """(size,) who is among ``parties``."""
    among = np.zeros(size, np.bool_)
    among[parties.astype(np.intp)] = True
    return among


def _reached(sources: Ints, sinks: Ints, begins: Ints, size: int) -> Bools:
    """(size,) what is reached from ``begins``, themselves included, along the edges from ``sources`` to ``sinks``."""
    turned = csr_array((np.ones(len(sinks), np.int8), (sources, sinks)), shape=(size, size))
    ends = np.append(turned.indptr, turned.indptr[-1] + len(begins)).astype(turned.indptr.dtype, copy=False)
    ways = np.concatenate((turned.indices, begins.astype(turned.indices.dtype, copy=False)))
    graph = csr_array((_ones(len(ways)), ways, ends), shape=(size + 1, size + 1))
    order = breadth_first_order(graph, size, directed=True, return_predecessors=False)
    reached = np.zeros(size + 1, np.bool_)
    reached[order] = True
    return reached[:size]
