"""Columns as numbers, and rows grouped by two of them: what counting over reports is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Whole, whole

Real = NDArray[np.float64]


class Words:
    """Texts as numbers below ``count``; a null is ``unknown``."""

    def __init__(self, texts: pa.Array | pa.ChunkedArray, unknown: str = "") -> None:
        coded = whole(texts)
        coded = pc.fill_null(coded, unknown) if coded.null_count else coded
        coded = coded.dictionary_encode()
        self.codes: Whole = coded.indices.to_numpy().astype(np.int64)
        self.count = max(len(coded.dictionary), 1)
        self._dictionary = coded.dictionary

    def words(self, codes: Whole) -> pa.Array:
        """The texts of ``codes``."""
        return self._dictionary.take(pa.array(codes))


class Groups:
    """Rows grouped by two numbers; ``one`` and ``two`` are the groups'."""

    def __init__(self, one: Whole, two: Whole) -> None:
        width = int(two.max(initial=0)) + 1
        keys, self._group = np.unique(one * width + two, return_inverse=True)
        self.one, self.two = np.divmod(keys, width)

    def counts(self) -> Whole:
        """How many rows each has."""
        return np.bincount(self._group, minlength=len(self.one))

    def sums(self, values: NDArray[Any]) -> Whole:
        """Sums of whole numbers, exact below 2^53."""
        return np.bincount(self._group, weights=values, minlength=len(self.one)).astype(np.int64)

    def most(self, values: Real) -> Real:
        """The greatest of each that is a number; NaN where there is none."""
        found = np.full(len(self.one), np.nan)
        np.fmax.at(found, self._group, values)
        return found


def times(keys: Whole, of: Whole) -> Whole:
    """How often each key occurs in the sorted ``of``."""
    return np.searchsorted(of, keys, side="right") - np.searchsorted(of, keys, side="left")
