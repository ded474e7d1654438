"""Sparse matrices of waits: small ones are searched in plain Python, large ones by scipy, with equal results.

The waits of most snapshots are few. For these scipy is not even imported, which takes a detector a third of its time to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Bools, Ints, WaitColumns

SMALL_MAX = 1_000
"""Parties and entries of a small matrix: with more, scipy is faster."""


def scipy_sparse() -> Any:
    """``scipy.sparse`` with ``csgraph``, imported now if it was not before."""
    import scipy.sparse.csgraph  # noqa: PLC0415  (see above)

    return scipy.sparse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matrix:
    """A square matrix over N parties with an entry where a party waits for another, as CSR.

    Attributes
    ----------
    indptr : (N + 1,) where the entries of each party begin.
    indices : the parties waited for; those of one party are sorted and distinct.
    """

    indptr: Ints
    indices: Ints

    @classmethod
    def of(cls, rows: Ints, columns: Ints, size: int) -> Matrix:
        """The matrix over ``size`` parties with an entry for each of ``rows`` and ``columns``; duplicates count once.

        Examples
        --------
        >>> Matrix.of(np.array([1, 0, 1]), np.array([0, 1, 0]), 3).indptr.tolist()
        [0, 1, 2, 2]
        """
        if size > SMALL_MAX or len(rows) > SMALL_MAX:
            made = scipy_sparse().csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(size, size))
            made.sum_duplicates()  # scipy's search for strong components may not terminate on duplicate entries
            return cls(indptr=made.indptr, indices=made.indices)
        keys = np.unique(rows.astype(np.int64) * size + columns)
        indptr = np.zeros(size + 1, np.int32)
        if size:
            np.cumsum(np.bincount(keys // size, minlength=size), out=indptr[1:])
        return cls(indptr=indptr, indices=(keys % max(size, 1)).astype(np.int32))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def scipy(self) -> Any:
        """The same for scipy, with ones as entries."""
        ones = np.ones(len(self.indices), np.int8)
        return scipy_sparse().csr_array((ones, self.indices, self.indptr), shape=(len(self), len(self)))

    def loops(self) -> Bools:
        """(N,) whether the party waits for itself."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        loops = np.zeros(len(self), np.bool_)
        loops[rows[rows == self.indices]] = True
        return loops

    def strong_components(self) -> Ints:
        """(N,) the number of the strong component of each party; no component waits for one with a higher number.

        References
        ----------
        R. Tarjan, Depth-first search and linear graph algorithms, SIAM Journal on Computing 1 (1972).

        Examples
        --------
        >>> Matrix.of(np.array([0, 1, 2]), np.array([1, 0, 0]), 3).strong_components().tolist()
        [0, 0, 1]
        """
        if self._is_small():
            return np.asarray(_strong_components(self._rows()), np.int32)
        _, labels = scipy_sparse().csgraph.connected_components(self.scipy(), directed=True, connection="strong")
        return np.asarray(labels)

    def reachable(self, start: int) -> Bools:
        """(N,) the parties for which ``start`` waits, directly or not, and ``start``."""
        reached = np.zeros(len(self), np.bool_)
        if not self._is_small():
            search = scipy_sparse().csgraph.breadth_first_order
            reached[search(self.scipy(), start, directed=True, return_predecessors=False)] = True
            return reached
        rows, todo, seen = self._rows(), [start], {start}
        while todo:
            new = [target for target in rows[todo.pop()] if target not in seen]
            seen.update(new)
            todo += new
        reached[list(seen)] = True
        return reached

    def _is_small(self) -> bool:
        return len(self) <= SMALL_MAX and len(self.indices) <= SMALL_MAX

    def _rows(self) -> list[list[int]]:
        indices, ends = self.indices.tolist(), self.indptr.tolist()
        return [indices[begin:end] for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmallRows:
    """Stands in for scipy's ``csr_array`` of ones: ``@ flags`` counts the flags at the ``indices`` of each row."""

    indptr: Ints
    indices: Ints

    def __matmul__(self, flags: NDArray[np.int8]) -> Ints:
        total = np.zeros(len(self.indices) + 1, np.int32)
        np.cumsum(flags.take(self.indices), out=total[1:])
        return np.diff(total[self.indptr])


def rows_of_ones(indptr: Ints, indices: Ints, columns: int, kind: type[np.integer[Any]]) -> Any:
    """A ``csr_array`` with ones of ``kind`` at ``indices`` and so many ``columns``, or :class:`SmallRows`."""
    if len(indices) <= SMALL_MAX:
        return SmallRows(indptr=indptr, indices=indices)
    return scipy_sparse().csr_array((np.ones(len(indices), kind), indices, indptr), shape=(len(indptr) - 1, columns))


def transposed(indptr: Ints, indices: Ints, columns: int) -> tuple[Ints, Ints]:
    """The rows in which each of ``columns`` occurs, in order, as CSR: (columns + 1,) begins, and the rows."""
    if len(indices) > SMALL_MAX:
        ones = np.ones(len(indices), np.int8)
        turned = scipy_sparse().csr_array((ones, indices, indptr), shape=(len(indptr) - 1, columns)).tocsc()
        return turned.indptr, turned.indices
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=indptr.dtype), np.diff(indptr))
    begins = np.zeros(columns + 1, indptr.dtype)
    np.cumsum(np.bincount(indices, minlength=columns), out=begins[1:])
    return begins, rows[np.argsort(indices, kind="stable")]


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
    return Matrix.of(source[arcs], target[arcs], count).strong_components()


def _strong_components(rows: list[list[int]]) -> list[int]:
    """Tarjan's search, from the first party on and along the last entry first: so scipy numbers them, too."""
    order, low, labels = [-1] * len(rows), [0] * len(rows), [-1] * len(rows)
    open_ones: list[int] = []
    found = components = 0
    for root in range(len(rows)):
        todo = [] if order[root] >= 0 else [(root, iter(rows[root][::-1]))]
        if todo:
            order[root] = low[root] = found
            found += 1
            open_ones.append(root)
        while todo:
            here, targets = todo[-1]
            for target in targets:
                if order[target] < 0:
                    order[target] = low[target] = found
                    found += 1
                    open_ones.append(target)
                    todo.append((target, iter(rows[target][::-1])))
                    break
                if labels[target] < 0:
                    low[here] = min(low[here], order[target])
            else:
                todo.pop()
                if todo:
                    above = todo[-1][0]
                    low[above] = min(low[above], low[here])
                if low[here] == order[here]:
                    while labels[here] < 0:
                        labels[open_ones.pop()] = components
                    components += 1
    return labels
