"""The remainder of a reduction as a separate graph, renumbered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.matrix import Matrix
from detector.graph.reduction import Reduction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RemainderGraph:
    """The remainder as a separate graph: N parties, renumbered, and the O open waits among them.

    Attributes
    ----------
    parties : (N,) the remainder, as sorted indices into the columns' names.
    waits : (O,) the open waits, as indices into the columns; ``waiter``, ``indptr`` and ``targets`` have the same order.
    waiter : (O,) the waiting parties, as indices into ``parties``.
    proof : (O,) how many blocked targets suffice to keep the wait open: n - needs + 1.
    indptr, targets : each wait's blocked targets, as indices into ``parties``.
    matrix : (N, N) has an entry where a party waits for another.
    labels : (N,) the strong component of each party.
    cyclic : (N,) whether the party lies on a cycle; these parties are the core.
    """

    parties: Ints
    waits: Ints
    waiter: Ints
    proof: Ints
    indptr: Ints
    targets: Ints
    matrix: Matrix
    labels: Ints
    cyclic: Bools

    def solid(self) -> Matrix:
        """``matrix`` restricted to the waits that a single blocked target keeps open."""
        alone = self.proof == 1
        if alone.all():
            return self.matrix
        chosen = np.repeat(alone, np.diff(self.indptr))
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        return Matrix.of(rows[chosen], self.targets[chosen], len(self.parties))

    def targets_of(self, wait: int) -> Ints:
        """The blocked targets of the open wait at ``wait``."""
        return self.targets[self.indptr[wait] : self.indptr[wait + 1]]


def remainder_graph(columns: WaitColumns, reduction: Reduction) -> RemainderGraph:
    """Extract the remainder of a finished reduction as a separate graph.

    Parameters
    ----------
    columns, reduction : the waits and their finished reduction.

    Returns
    -------
    RemainderGraph
        Without the parties that are merely held, since what they wait for is unknown: a wait for such a party loses that target
        and keeps its ``proof``.

    Examples
    --------
    >>> from detector.graph.columns import columns_of_lists
    >>> from detector.graph.reduction import reduce
    >>> waits = columns_of_lists(waiters=["a", "b", "c", "d"], needs=[1] * 4, sizes=[1] * 4, among=["b", "a", "a", "e"])
    >>> graph = remainder_graph(waits, reduce(waits))
    >>> waits.named(graph.parties), graph.cyclic.tolist()
    (('a', 'b', 'c'), [True, True, False])
    """
    waiting = np.zeros(len(columns.names), np.bool_)
    waiting[reduction.waiter] = True
    parties = np.flatnonzero(waiting & ~reduction.free)
    position = np.full(len(columns.names), -1, columns.waiter.dtype)
    position[parties] = np.arange(len(parties))
    targets = position[reduction.targets]
    inside = targets >= 0
    left = np.zeros(len(targets) + 1, reduction.indptr.dtype)
    np.cumsum(inside, out=left[1:])
    indptr = left[reduction.indptr]
    waiter = position[reduction.waiter]
    matrix = Matrix.of(np.repeat(waiter, np.diff(indptr)), targets[inside], len(parties))
    labels = matrix.strong_components()
    return RemainderGraph(
        parties=parties,
        waits=reduction.open,
        waiter=waiter,
        proof=(columns.sizes() - columns.needs + 1)[reduction.open],
        indptr=indptr,
        targets=targets[inside],
        matrix=matrix,
        labels=labels,
        cyclic=(np.bincount(labels)[labels] > 1) | matrix.loops(),
    )
