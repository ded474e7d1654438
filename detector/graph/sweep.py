"""The reduction's first gear: sweeps over all open waits, block by block, each block seeing what the ones before it freed.

A block is so many waits that what is computed of them stays in the processor's cache and below the size from which memory is
taken from the system anew each time. How many targets have come is one sparse product over bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from detector.graph.columns import Bools, Ints
from detector.graph.open_waits import OpenWaits

MANY_SHARE = 32
"""A sweep that frees fewer than one in this many of those who wait frees few."""
FEW_SWEEPS_MAX = 2
SWEEPS_MAX = 64
"""Sweeps in a row, whatever they free: what bounds the passes over memory."""
COMPACT_SHARE = 3
"""A block in which no more than one in this many waits is open leaves the others out."""
COMPACT_WAITS_MIN = 5_000
"""With fewer waits than this, leaving out those that are over costs more than it saves."""
FEW_SHARE = 8
"""Up to one in this many parties newly free is written one by one; beyond, all are written."""


class Block:
    """Some open waits, all those of their waiters; changed in place as waits end."""

    def __init__(self, waiter: Ints, short: Ints, matrix: Any) -> None:
        """A row a wait: who waits, how many targets must come, and the targets as entries of 1 in ``matrix``."""
        self._matrix = matrix
        self._short = short
        self._who = waiter
        self._begins: Ints | None = None
        if not (waiter[1:] > waiter[:-1]).all():  # somebody waits twice
            self._begins = np.flatnonzero(np.concatenate(([True], waiter[1:] != waiter[:-1])))
            self._who = waiter[self._begins]
        self._waiter = waiter
        self._freed = np.zeros(len(self._who), np.bool_)
        self._count = 0

    def sweep(self, free: Bools) -> int:
        """Free whoever has all waits over, in place: how many that is."""
        over = self._matrix @ free.view(np.int8) >= self._short
        freed = over if self._begins is None else np.logical_and.reduceat(over, self._begins)
        count = int(np.count_nonzero(freed))
        fresh = count - self._count
        if not fresh:
            return 0
        if FEW_SHARE * fresh < len(freed):
            free[self._who[np.flatnonzero(freed ^ self._freed)].astype(np.intp)] = True
        else:
            free[self._who.astype(np.intp)] = freed
        self._freed, self._count = freed, count
        if COMPACT_SHARE * (len(freed) - count) <= len(freed) and len(over) >= COMPACT_WAITS_MIN:
            self._compact(over)
        return fresh

    def left(self) -> int:
        """How many parties still wait."""
        return len(self._who) - self._count

    def _compact(self, over: Bools) -> None:
        rows = np.flatnonzero(~over)
        begins = self._matrix.indptr[rows]
        sizes = self._matrix.indptr[1:][rows] - begins
        indptr = np.zeros(len(rows) + 1, sizes.dtype)
        np.cumsum(sizes, out=indptr[1:])
        at = np.repeat(begins - indptr[:-1], sizes)
        at += np.arange(len(at), dtype=at.dtype)
        shape = (len(rows), self._matrix.shape[1])
        matrix: Any = csr_array((self._matrix.data[: len(at)], self._matrix.indices.take(at), indptr), shape=shape)
        self.__init__(self._waiter[rows], self._short[rows], matrix)  # type: ignore[misc]


def sweep_all(free: Bools, held: Bools | None, rest: OpenWaits, share_min: float = 0.0) -> bool:
    """Sweep over the waits in ``rest``, in place for ``free`` (P,); whether that was the end.

    It was not when ``FEW_SWEEPS_MAX`` sweeps freed few, and about as many as the sweep before: ways are long then.
    A sweep that frees less than ``share_min`` of what the first one did is taken as the end, too.
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
    """The waits in blocks; of a held party (P,) none ever ends."""
    for low, high, matrix, short in rest.counting():
        waiter = rest.waiter[low:high]
        if held is not None:
            short[held[waiter.astype(np.intp)]] = np.iinfo(short.dtype).max
        yield Block(waiter, short, matrix)
