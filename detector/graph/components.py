"""Strongly connected components among some parties of a wait-for graph."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.graph.columns import Bools, Ints, WaitColumns


def strong_components(waits: WaitColumns, place: Ints, count: int, keep: Bools | None = None) -> Ints:
    """The strong component of each of ``count`` parties, over the waits between them.

    Parameters
    ----------
    waits : the graph, of P parties and W waits.
    place : (P,) the number from 0 to ``count`` - 1 that a party gets; -1 leaves it out.
    keep : (W,) the waits that count; None: all.

    Returns
    -------
    (count,) labels. Parties with equal labels reach each other.
    """
    source = np.repeat(place[waits.waiter], waits.sizes())
    target = place[waits.targets]
    arcs = (source >= 0) & (target >= 0)
    if keep is not None:
        arcs &= np.repeat(keep, waits.sizes())
    if not count:
        return np.empty(0, np.int64)
    graph = csr_array((np.ones(int(arcs.sum()), np.int8), (source[arcs], target[arcs])), shape=(count, count))
    _, labels = connected_components(graph, directed=True, connection="strong")
    return np.asarray(labels)
