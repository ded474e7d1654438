"""The first phase of the reduction: sweeps over all open waits, block by block, where each block sees what earlier ones freed.

A block's temporaries fit the processor's cache, and are small enough not to be requested from the system each time. One sparse
product over bytes counts the granted targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from detector.graph.columns import Bools, Ints
from detector.graph.matrix import SmallRows, scipy_sparse
from detector.graph.open_waits import OpenWaits

MANY_SHARE = 32
"""A sweep frees few parties if it frees fewer than one in this many of those waiting."""
FEW_SWEEPS_MAX = 2
SWEEPS_MAX = 64
"""Maximum number of sweeps in a row, to bound the passes over memory."""
COMPACT_SHARE = 3
"""A block drops its ended waits once at most one in this many is still open."""
COMPACT_WAITS_MIN = 5_000
"""With fewer waits than this, dropping ended ones costs more than it saves."""
FEW_SHARE = 8
"""If fewer than one in this many parties are newly free, only these are written, otherwise the whole block."""


class Block:
    """A block of open waits with all the waits of its parties; updated in place as waits end."""

    def __init__(self, waiter: Ints, short: Ints, matrix: Any) -> None:
        """One row per wait: the waiter, how many targets must be granted, and the targets as ones in ``matrix``."""
        self._matrix = matrix
        self._short = short
        self._parties = waiter
        self._begins: Ints | None = None
        if not (waiter[1:] > waiter[:-1]).all():  # some party has several waits
            self._begins = np.flatnonzero(np.concatenate(([True], waiter[1:] != waiter[:-1])))
            self._parties = waiter[self._begins]
        self._waiter = waiter
        self._freed = np.zeros(len(self._parties), np.bool_)
        self._count = 0

    def sweep(self, free: Bools) -> int:
        """Free the parties whose waits have all ended, updating ``free``; returns the number of newly free ones."""
        ended = self._matrix @ free.view(np.int8) >= self._short
        freed = ended if self._begins is None else np.logical_and.reduceat(ended, self._begins)
        count = int(np.count_nonzero(freed))
        fresh = count - self._count
        if not fresh:
            return 0
        if FEW_SHARE * fresh < len(freed):
            free[self._parties[np.flatnonzero(freed ^ self._freed)].astype(np.intp)] = True
        else:
            free[self._parties.astype(np.intp)] = freed
        self._freed, self._count = freed, count
        if COMPACT_SHARE * (len(freed) - count) <= len(freed) and len(ended) >= COMPACT_WAITS_MIN:
            self._compact(ended)
        return fresh

    def left(self) -> int:
        """The number of parties still waiting."""
        return len(self._parties) - self._count

    def _compact(self, ended: Bools) -> None:
        rows = np.flatnonzero(~ended)
        begins = self._matrix.indptr[rows]
        sizes = self._matrix.indptr[1:][rows] - begins
        indptr = np.zeros(len(rows) + 1, sizes.dtype)
        np.cumsum(sizes, out=indptr[1:])
        at = np.repeat(begins - indptr[:-1], sizes)
        at += np.arange(len(at), dtype=at.dtype)
        matrix: Any = SmallRows(indptr=indptr, indices=self._matrix.indices.take(at))
        if not isinstance(self._matrix, SmallRows):
            left = (self._matrix.data[: len(at)], matrix.indices, indptr)
            matrix = scipy_sparse().csr_array(left, shape=(len(rows), self._matrix.shape[1]))
        self.__init__(self._waiter[rows], self._short[rows], matrix)  # type: ignore[misc]


def sweep_all(free: Bools, held: Bools | None, rest: OpenWaits, share_min: float = 0.0) -> bool:
    """Sweep over the open waits repeatedly, updating ``free``.

    Parameters
    ----------
    free : (P,) the free parties; updated in place.
    held : (P,) parties that are never freed; None if there are none.
    rest : the open waits.
    share_min : stop as if finished when a sweep frees less than this share of the number that the first one freed.

    Returns
    -------
    bool
        True if nothing more can be freed (or ``share_min`` was reached). False if ``FEW_SWEEPS_MAX`` sweeps freed few parties,
        and about as many as the sweep before: then paths are long, and sweeps are inefficient.
    """
    parts = list(_blocks(held, rest))
    few = last = first = 0
    for _ in range(SWEEPS_MAX):
        freed = sum(part.sweep(free) for part in parts)
        left = sum(part.left() for part in parts)
        first = first or freed
        if not freed or not left or freed < share_min * first:
            return True
        few += MANY_SHARE * freed < left and 4 * last < 5 * freed < 10 * last
        if few >= FEW_SWEEPS_MAX:
            return False
        last = freed
    return False


def _blocks(held: Bools | None, rest: OpenWaits) -> Iterator[Block]:
    """Split the waits into blocks; those of a held party (P,) never end."""
    for low, high, matrix, short in rest.counting():
        waiter = rest.waiter[low:high]
        if held is not None:
            short[held[waiter.astype(np.intp)]] = np.iinfo(short.dtype).max
        yield Block(waiter, short, matrix)
