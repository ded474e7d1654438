"""The open waits of a reduction under way, as CSR columns, and what is left of them as more parties are free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from detector.graph.columns import Bools, Ints, WaitColumns

PIECE_TARGETS = 1 << 19
"""Targets worked on at once: what is computed of more would be given back to the system, and taken anew, at every step."""
PIECE_WAITS = 1 << 15
"""Waits looked at once: indices of another type than numpy's own are converted, and large results are new memory each time."""
COUNT_BYTE_MAX = 126
"""Waits for fewer targets than this are counted in bytes: a quarter of the memory."""
SOME_WAITS = 256
"""Waits that are looked at before all are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenWaits:
    """Some open waits, sorted by waiter.

    Attributes
    ----------
    open : (O,) their positions in the columns.
    waiter : (O,) who waits in each of them.
    short : (O,) how many of the targets must come.
    indptr, targets : the targets of each, as CSR.
    parties : P.
    """

    open: Ints
    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints
    parties: int

    @classmethod
    def of(cls, columns: WaitColumns, *, positions: bool = True) -> OpenWaits:
        """All waits of ``columns``; without ``positions`` nobody will ask which of them are open."""
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
        """Whether nobody waits twice."""
        return bool((self.waiter[1:] > self.waiter[:-1]).all())

    def waits_of_each(self) -> Ints:
        """(P,) how many of the waits are whose."""
        owed: Ints = np.zeros(self.parties, self.waiter.dtype)
        if self.single():
            owed[self.waiter.astype(np.intp)] = 1
            return owed
        return np.bincount(self.waiter, minlength=self.parties).astype(self.waiter.dtype, copy=False)

    def one_way(self) -> bool:
        """Whether all wait for parties of lower numbers alone, or all for higher ones: then nobody waits in a circle.

        Seen from the first or the last target of each wait, and mostly from the first few waits.
        """
        return self._outside(1, np.less) or self._outside(0, np.greater)

    def _outside(self, end: int, outside: np.ufunc) -> bool:
        """Whether the last (``end`` 1) or the first (0) target of each wait is so: seen in pieces that fit the cache."""
        low, high = 0, SOME_WAITS
        while low < len(self):
            ends = self.indptr[low + end : min(high, len(self)) + end].astype(np.intp)
            ends -= end
            if not outside(self.targets[ends], self.waiter[low:high]).all():
                return False
            low, high = high, high + PIECE_WAITS
        return True

    def set_waiters(self, flags: Bools, flag: bool) -> None:
        """Set ``flags`` (P,) of everybody who waits, in pieces that fit the cache."""
        first, last = (int(self.waiter[0]), int(self.waiter[-1])) if len(self) else (0, -1)
        if last - first + 1 == len(self) and self.single():  # all from the first to the last
            flags[first : last + 1] = flag
            return
        for low in range(0, len(self), PIECE_WAITS):
            flags[self.waiter[low : low + PIECE_WAITS].astype(np.intp)] = flag

    def only(self, keep: Bools) -> OpenWaits:
        """The waits in ``keep`` (O,), with all their targets."""
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

    def without_over(self, free: Bools) -> OpenWaits:
        """The waits of parties that are not free; of who has several, those that are not over (or all, where all are)."""
        left = self.only(~free[self.waiter.astype(np.intp)])
        if not len(left) or left.single():
            return left
        keep = np.concatenate([graph @ free.view(np.int8) < short for *_, graph, short in left.counting()])
        still = np.zeros(self.parties, np.bool_)
        still[left.waiter[keep]] = True
        return left.only(keep | ~still[left.waiter])

    def settled(self, free: Bools) -> OpenWaits:
        """The waits that are not over, of parties that are not free, without the targets that have come.

        At the end of a reduction whoever is not free has such a wait, or is held. Before the end a wait that is over may be
        among them, short of none; and a party of whose several waits none is among them is free.
        """
        stuck = ~free[self.waiter.astype(np.intp)]
        if 2 * np.count_nonzero(stuck) < len(stuck):
            return self.only(stuck).settled(free)
        waiting, single = ~free, self.single()
        keeps, sizes, shorts, targets = [], [], [], []
        for low, high, graph, short in self.counting():
            keep, own = stuck[low:high], np.diff(graph.indptr)
            stay = waiting.take(graph.indices)
            stays = _sums(stay, graph.indptr)
            come = own - stays
            if not single:
                keep &= come < short
            keeps.append(keep)
            sizes.append(stays[keep])
            shorts.append(np.maximum(self.short[low:high] - come, 0)[keep])
            if not keep.all():
                stay &= np.repeat(keep, own)
            targets.append(graph.indices if stay.all() else graph.indices.compress(stay))
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
        """The waits in pieces (from, to), no party's in two: how many targets have come is a matrix's product with who is free.

        With each matrix, how many must come: as narrow as the counts, and so capped, beyond what they can reach.
        """
        if not len(self):
            return
        counts: type[np.integer[Any]] = np.int8 if int(np.diff(self.indptr).max()) < COUNT_BYTE_MAX else np.int32
        short: Ints = np.minimum(self.short, np.iinfo(counts).max - 1).astype(counts)
        cuts = np.searchsorted(self.indptr, np.arange(PIECE_TARGETS, int(self.indptr[-1]), PIECE_TARGETS))
        cuts = np.searchsorted(self.waiter, self.waiter[cuts[cuts < len(self)]])
        for low, high in pairwise(np.unique(np.concatenate(([0], cuts, [len(self)]))).tolist()):
            begin, end = int(self.indptr[low]), int(self.indptr[high])
            rows = (np.ones(end - begin, counts), self.targets[begin:end], self.indptr[low : high + 1] - self.indptr[low])
            yield low, high, csr_array(rows, shape=(high - low, self.parties)), short[low:high]


def _sums(flags: Bools, indptr: Ints) -> Ints:
    """How many ``flags`` are set in each row."""
    total = np.zeros(len(flags) + 1, indptr.dtype)
    np.cumsum(flags, out=total[1:])
    return np.diff(total[indptr])
