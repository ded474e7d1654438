"""A set of snapshot numbers that stays small however many it holds: numbers rise, so it is a few intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Numbers from ``low`` to ``high``, both included, of each interval; intervals are apart and in order."""

    intervals: tuple[tuple[int, int], ...] = ()

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``numbers`` are in it."""
        if not self.intervals:
            return np.zeros(len(numbers), np.bool_)
        lows, highs = np.asarray(self.intervals, np.int64).T
        at = np.searchsorted(lows, numbers, side="right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (numbers <= highs[at])
        return found

    def count(self) -> int:
        """How many there are."""
        return sum(high - low + 1 for low, high in self.intervals)

    def also(self, numbers: Iterable[int]) -> Finished:
        """This set and ``numbers``."""
        more = np.unique(np.fromiter(numbers, np.int64))
        parts = sorted([*self.intervals, *((int(number), int(number)) for number in more)])
        return Finished(intervals=_joined(parts))


NONE = Finished()


def _joined(parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for low, high in parts:
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)
