"""The open waits of a reduction in progress as CSR columns, and their selection as more parties become free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.matrix import rows_of_ones

PIECE_TARGETS = 1 << 19
"""Targets processed at once. Larger temporaries would be returned to the system and allocated again at every step."""
PIECE_WAITS = 1 << 15
"""Waits examined at once, since numpy converts int32 indices and allocates memory for large results each time."""
COUNT_BYTE_MAX = 126
"""If every wait has fewer targets than this, they are counted in bytes, which takes a quarter of the memory."""
SAMPLE_WAITS = 256
"""Number of waits examined first; they mostly decide."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenWaits:
    """A set of open waits, sorted by waiter.

    Attributes
    ----------
    open : (O,) the index of each wait in the columns.
    waiter : (O,) the waiting party of each.
    short : (O,) how many more of its targets must be granted.
    indptr, targets : their targets, as CSR.
    parties : P, the number of parties.
    """

    open: Ints
    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints
    parties: int

    @classmethod
    def of(cls, columns: WaitColumns, *, positions: bool = True) -> OpenWaits:
        """All waits of ``columns``. Without ``positions``, ``open`` is not filled in."""
        kind = columns.waiter.dtype
        return cls(
            open=np.arange(len(columns), dtype=kind) if positions else np.broadcast_to(kind.type(0), len(columns)),
            waiter=columns.waiter,
            short=columns.needs,
            indptr=columns.indptr,
            targets=columns.targets,
            parties=len(columns.names),
        )

    def __len__(self) -> int:
        return len(self.waiter)

    def single(self) -> bool:
        """Whether each party has at most one wait."""
        return bool((self.waiter[1:] > self.waiter[:-1]).all())

    def waits_of_each(self) -> Ints:
        """(P,) the number of waits of each party."""
        owed: Ints = np.zeros(self.parties, self.waiter.dtype)
        if self.single():
            owed[self.waiter.astype(np.intp)] = 1
            return owed
        return np.bincount(self.waiter, minlength=self.parties).astype(self.waiter.dtype, copy=False)

    def one_way(self) -> bool:
        """Whether all targets precede their waiters, or all follow them, so that there is no cycle.

        Only the first or last target of each wait is examined; in most graphs the first few waits decide.
        """
        return self._outside(1, np.less) or self._outside(0, np.greater)

    def _outside(self, end: int, outside: np.ufunc) -> bool:
        """Whether ``outside`` holds for the last (``end`` 1) or first (0) target of each wait; works in cache-sized pieces."""
        low, high = 0, SAMPLE_WAITS
        while low < len(self):
            ends = self.indptr[low + end : min(high, len(self)) + end].astype(np.intp)
            ends -= end
            if not outside(self.targets[ends], self.waiter[low:high]).all():
                return False
            low, high = high, high + PIECE_WAITS
        return True

    def set_waiters(self, flags: Bools, flag: bool) -> None:
        """Set ``flags`` (P,) of every waiter to ``flag``; works in cache-sized pieces."""
        first, last = (int(self.waiter[0]), int(self.waiter[-1])) if len(self) else (0, -1)
        if last - first + 1 == len(self) and self.single():  # a contiguous range
            flags[first : last + 1] = flag
            return
        for low in range(0, len(self), PIECE_WAITS):
            flags[self.waiter[low : low + PIECE_WAITS].astype(np.intp)] = flag

    def only(self, keep: Bools) -> OpenWaits:
        """Select the waits in ``keep`` (O,), with all their targets."""
        rows = np.flatnonzero(keep)
        if len(rows) == len(keep):
            return self
        begins = self.indptr[rows]
        sizes = self.indptr[1:][rows] - begins
        indptr = np.zeros(len(rows) + 1, self.indptr.dtype)
        np.cumsum(sizes, out=indptr[1:])
        at = np.repeat(begins - indptr[:-1], sizes)
        at += np.arange(len(at), dtype=at.dtype)
        return OpenWaits(
            open=self.open[rows],
            waiter=self.waiter[rows],
            short=self.short[rows],
            indptr=indptr,
            targets=self.targets.take(at),
            parties=self.parties,
        )

    def without_ended(self, free: Bools) -> OpenWaits:
        """The waits of parties that are not free; of a party with several, those still open (or all, if none is)."""
        left = self.only(~free[self.waiter.astype(np.intp)])
        if not len(left) or left.single():
            return left
        keep = np.concatenate([graph @ free.view(np.int8) < short for *_, graph, short in left.counting()])
        still = np.zeros(self.parties, np.bool_)
        still[left.waiter[keep]] = True
        return left.only(keep | ~still[left.waiter])

    def settled(self, free: Bools) -> OpenWaits:
        """The open waits of parties that are not free, without the targets already granted.

        After a reduction, every party that is not free has such a wait or is held. Before its end, the result may contain a
        finished wait, with ``short`` 0; and a party with several waits of which none is in the result is free.
        """
        stuck = ~free[self.waiter.astype(np.intp)]
        if 2 * np.count_nonzero(stuck) < len(stuck):
            return self.only(stuck).settled(free)
        waiting, single = ~free, self.single()
        keeps, sizes, shorts, targets = [], [], [], []
        for low, high, graph, short in self.counting():
            keep, own = stuck[low:high], np.diff(graph.indptr)
            blocked = waiting.take(graph.indices)
            blocked_sizes = _sums(blocked, graph.indptr)
            granted = own - blocked_sizes
            if not single:
                keep &= granted < short
            keeps.append(keep)
            sizes.append(blocked_sizes[keep])
            shorts.append(np.maximum(self.short[low:high] - granted, 0)[keep])
            if not keep.all():
                blocked &= np.repeat(keep, own)
            targets.append(graph.indices if blocked.all() else graph.indices.compress(blocked))
        if sum(map(len, targets)) == len(self.targets):
            return self
        rows = np.flatnonzero(np.concatenate(keeps))
        indptr = np.zeros(len(rows) + 1, self.indptr.dtype)
        np.cumsum(np.concatenate(sizes), out=indptr[1:])
        return OpenWaits(
            open=self.open[rows],
            waiter=self.waiter[rows],
            short=np.concatenate(shorts),
            indptr=indptr,
            targets=np.concatenate(targets),
            parties=self.parties,
        )

    def counting(self) -> Iterator[tuple[int, int, Any, Ints]]:
        """The waits in pieces, as (from, to, matrix, short); all waits of a party are in one piece.

        ``matrix @ free`` counts the granted targets. ``short`` is how many must be granted, in the same narrow type, capped
        above the largest possible count.
        """
        if not len(self):
            return
        counts: type[np.integer[Any]] = np.int8 if int(np.diff(self.indptr).max()) < COUNT_BYTE_MAX else np.int32
        short: Ints = np.minimum(self.short, np.iinfo(counts).max - 1).astype(counts)
        cuts = np.searchsorted(self.indptr, np.arange(PIECE_TARGETS, int(self.indptr[-1]), PIECE_TARGETS))
        cuts = np.searchsorted(self.waiter, self.waiter[cuts[cuts < len(self)]])
        for low, high in pairwise(np.unique(np.concatenate(([0], cuts, [len(self)]))).tolist()):
            begin, end = int(self.indptr[low]), int(self.indptr[high])
            indptr = self.indptr[low : high + 1] - self.indptr[low]
            yield low, high, rows_of_ones(indptr, self.targets[begin:end], self.parties, counts), short[low:high]


def _sums(flags: Bools, indptr: Ints) -> Ints:
    """The number of ``flags`` set in each row."""
    total = np.zeros(len(flags) + 1, indptr.dtype)
    np.cumsum(flags, out=total[1:])
    return np.diff(total[indptr])
