"""Finds strongly connected components among some parties of a wait-for graph."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.graph.columns import Bools, Ints, WaitColumns


def strong_components(waits: WaitColumns, position: Ints, count: int, keep: Bools | None = None) -> Ints:
    """Label the strong component of each of ``count`` parties, over the waits between them.

    Parameters
    ----------
    waits : the graph, with P parties and W waits.
    position : (P,) the new number of each party, from 0 to ``count`` - 1; -1 leaves it out.
    keep : (W,) the waits to use; None means all.

    Returns
    -------
    (count,) labels. Parties with equal labels reach each other.
    """
    source = np.repeat(position[waits.waiter], waits.sizes())
    target = position[waits.targets]
    arcs = (source >= 0) & (target >= 0)
    if keep is not None:
        arcs &= np.repeat(keep, waits.sizes())
    if not count:
        return np.empty(0, np.int64)
    graph = csr_array((np.ones(int(arcs.sum()), np.int8), (source[arcs], target[arcs])), shape=(count, count))
    _, labels = connected_components(graph, directed=True, connection="strong")
    return np.asarray(labels)
