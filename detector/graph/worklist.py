"""The third gear of the reduction: from newly free parties to the waits that they end, touching nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from detector.graph.columns import Bools, Ints

FRONTIER_PARTIES_MIN = 48
"""Below this many newly free parties, a loop over single parties is faster than array operations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worklist:
    """The state of a reduction in progress, updated in place; columns as in :class:`~detector.graph.reduction.Reduction`."""

    free: Bools
    owed: Ints
    waiter: Ints
    short: Ints

    def run(self, indptr: Ints, targets: Ints) -> None:
        """Apply the rules to their end, given the open waits' targets; free parties among these are counted first."""
        ups, waits = _turned(indptr, targets, len(self.free))
        listed = np.zeros(len(self.free), np.bool_)
        listed[targets] = True
        frontier: Ints = np.flatnonzero(listed & self.free)
        while len(frontier):
            frontier = (self._few if len(frontier) < FRONTIER_PARTIES_MIN else self._many)(ups, waits, frontier)

    def _many(self, ups: Ints, waits: Ints, frontier: Ints) -> Ints:
        """One round on arrays; returns the parties that ``frontier`` frees."""
        begins = ups[frontier]
        counts = ups[frontier + 1] - begins
        ends = np.cumsum(counts)
        touched = waits[np.repeat(begins - (ends - counts), counts) + np.arange(ends[-1])]
        touched = touched[self.short[touched] > 0]
        np.subtract.at(self.short, touched, 1)
        over = np.unique(touched[self.short[touched] <= 0])
        waiters = self.waiter[over]
        np.subtract.at(self.owed, waiters, 1)
        freed: Ints = np.unique(waiters[(self.owed[waiters] == 0) & ~self.free[waiters]])
        self.free[freed] = True
        return freed

    def _few(self, ups: Ints, waits: Ints, frontier: Ints) -> Ints:
        """One party at a time, until done or the frontier has grown; returns the parties still to process."""
        free, owed, waiter, short = _view(self.free), _view(self.owed), _view(self.waiter), _view(self.short)
        begins, lined = _view(ups), _view(waits)
        todo: list[int] = frontier.tolist()
        while todo and len(todo) < 4 * FRONTIER_PARTIES_MIN:
            party = todo.pop()
            for wait in lined[begins[party] : begins[party + 1]]:
                short[wait] -= 1
                if short[wait] == 0:
                    blocked = waiter[wait]
                    owed[blocked] -= 1
                    if owed[blocked] == 0 and not free[blocked]:
                        free[blocked] = True
                        todo.append(blocked)
        return np.asarray(todo, ups.dtype)


def _turned(indptr: Ints, targets: Ints, parties: int) -> tuple[Ints, Ints]:
    """For each party, the open waits for it, as CSR."""
    shape = (len(indptr) - 1, parties)
    graph = csr_array((np.ones(len(targets), np.int8), targets, indptr), shape=shape).tocsc()
    return graph.indptr, graph.indices


def _view(column: Any) -> memoryview[Any]:
    """The column with Python's numbers as items, which read several times faster than numpy's."""
    return memoryview(column)
