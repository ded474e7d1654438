"""The third phase of the reduction: follows newly free parties to the waits that they end, touching nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detector.graph.columns import Bools, Ints
from detector.graph.matrix import transposed

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
        """Apply the rules to the end, given the targets of the open waits; targets that are already free are counted first."""
        ups, waits = transposed(indptr, targets, len(self.free))
        listed = np.zeros(len(self.free), np.bool_)
        listed[targets] = True
        frontier: Ints = np.flatnonzero(listed & self.free)
        while len(frontier):
            step = self._step_by_party if len(frontier) < FRONTIER_PARTIES_MIN else self._step_by_array
            frontier = step(ups, waits, frontier)

    def _step_by_array(self, ups: Ints, waits: Ints, frontier: Ints) -> Ints:
        """One round of array operations; returns the parties that ``frontier`` frees."""
        begins = ups[frontier]
        counts = ups[frontier + 1] - begins
        ends = np.cumsum(counts)
        touched = waits[np.repeat(begins - (ends - counts), counts) + np.arange(ends[-1])]
        touched = touched[self.short[touched] > 0]
        np.subtract.at(self.short, touched, 1)
        ended = np.unique(touched[self.short[touched] <= 0])
        waiters = self.waiter[ended]
        np.subtract.at(self.owed, waiters, 1)
        freed: Ints = np.unique(waiters[(self.owed[waiters] == 0) & ~self.free[waiters]])
        self.free[freed] = True
        return freed

    def _step_by_party(self, ups: Ints, waits: Ints, frontier: Ints) -> Ints:
        """Process one party at a time, until done or the frontier has grown; returns the parties still to process."""
        free, owed, waiter, short = _view(self.free), _view(self.owed), _view(self.waiter), _view(self.short)
        begins, waits_view = _view(ups), _view(waits)
        todo: list[int] = frontier.tolist()
        while todo and len(todo) < 4 * FRONTIER_PARTIES_MIN:
            party = todo.pop()
            for wait in waits_view[begins[party] : begins[party + 1]]:
                short[wait] -= 1
                if short[wait] == 0:
                    blocked = waiter[wait]
                    owed[blocked] -= 1
                    if owed[blocked] == 0 and not free[blocked]:
                        free[blocked] = True
                        todo.append(blocked)
        return np.asarray(todo, ups.dtype)


def _view(column: Any) -> memoryview[Any]:
    """The column with Python numbers as items, which are several times faster to read than numpy's."""
    return memoryview(column)
