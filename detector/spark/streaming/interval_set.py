"""A set of snapshot numbers, stored as intervals: since numbers rise, there are only a few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSet:
    """The numbers from ``low`` to ``high``, inclusive, of disjoint, sorted intervals."""

    intervals: tuple[tuple[int, int], ...] = ()

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of ``numbers`` are in the set."""
        if not self.intervals:
            return np.zeros(len(numbers), np.bool_)
        lows, highs = np.asarray(self.intervals, np.int64).T
        at = np.searchsorted(lows, numbers, side="right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (numbers <= highs[at])
        return found

    def count(self) -> int:
        """Return the number of elements."""
        return sum(high - low + 1 for low, high in self.intervals)

    def union(self, numbers: Iterable[int]) -> IntervalSet:
        """Return the union with ``numbers``."""
        more = np.unique(np.fromiter(numbers, np.int64))
        parts = sorted([*self.intervals, *((int(number), int(number)) for number in more)])
        return IntervalSet(intervals=_merged(parts))


EMPTY = IntervalSet()


def _merged(parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for low, high in parts:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)
