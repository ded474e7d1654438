"""The remainder of a reduction as a separate graph, renumbered, and its core.

Not every cycle of open waits is part of the core. A request waits for one of a thread and of two other requests, each of which
could cancel it: the three requests are on a cycle, but whatever frees the thread frees them. They are behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    core : (N,) whether the party lies on a cycle that parties outside its component cannot undo.
    """

    parties: Ints
    waits: Ints
    waiter: Ints
    proof: Ints
    indptr: Ints
    targets: Ints
    matrix: Matrix
    labels: Ints
    core: Bools

    def solid(self) -> Matrix:
        """``matrix`` restricted to the waits that a single blocked target keeps open."""
        alone = self.proof == 1
        if alone.all():
            return self.matrix
        chosen = np.repeat(alone, np.diff(self.indptr))
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        return Matrix.of(rows[chosen], self.targets[chosen], len(self.parties))

    def closed(self, members: Bools, labels: Ints) -> Bools:
        """The largest part of ``members`` in which each has a wait that members with its own label alone keep open."""
        own = np.repeat(labels[self.waiter], np.diff(self.indptr)) == labels[self.targets]
        while True:
            inside = np.zeros(len(self.targets) + 1, np.int64)
            np.cumsum(own & members[self.targets], out=inside[1:])
            kept_open = np.diff(inside[self.indptr]) >= self.proof
            proven = np.zeros(len(members), np.bool_)
            proven[self.waiter[kept_open]] = True
            proven &= members
            if np.array_equal(proven, members):
                return members
            members = proven

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
    >>> waits.named(graph.parties), graph.core.tolist()
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
    cyclic = (np.bincount(labels)[labels] > 1) | matrix.loops()
    graph = RemainderGraph(
        parties=parties,
        waits=reduction.open,
        waiter=waiter,
        proof=(columns.sizes() - columns.needs + 1)[reduction.open],
        indptr=indptr,
        targets=targets[inside],
        matrix=matrix,
        labels=labels,
        core=cyclic,
    )
    return replace(graph, core=_core(graph, cyclic))


def _core(graph: RemainderGraph, cyclic: Bools) -> Bools:
    """(N,) the parties on cycles, once those are set aside that parties outside their component could free."""
    labels = graph.labels
    while True:
        kept = graph.closed(cyclic, labels)
        if np.array_equal(kept, cyclic):
            return kept
        rows = np.repeat(np.arange(len(kept)), np.diff(graph.matrix.indptr))
        inside = kept[rows] & kept[graph.matrix.indices]
        rest = Matrix.of(rows[inside], graph.matrix.indices[inside], len(kept))
        labels = rest.strong_components()
        cyclic = (np.bincount(labels)[labels] > 1) | rest.loops()
