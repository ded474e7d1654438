"""Dictionary-encoded columns, and rows grouped by two of them, for counting over reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Int64s, combined

Real = NDArray[np.float64]


class EncodedTexts:
    """Texts encoded as numbers below ``count``; a null is encoded as ``unknown``."""

    def __init__(self, texts: pa.Array | pa.ChunkedArray, unknown: str = "") -> None:
        coded = combined(texts)
        coded = pc.fill_null(coded, unknown) if coded.null_count else coded
        coded = coded.dictionary_encode()
        self.codes: Int64s = coded.indices.to_numpy().astype(np.int64)
        self.count = max(len(coded.dictionary), 1)
        self._dictionary = coded.dictionary

    def texts(self, codes: Int64s) -> pa.Array:
        """Return the texts of ``codes``."""
        return self._dictionary.take(pa.array(codes))


class Groups:
    """Rows grouped by two numbers; ``one`` and ``two`` are the numbers of each group."""

    def __init__(self, one: Int64s, two: Int64s) -> None:
        width = int(two.max(initial=0)) + 1
        keys, self._group = _grouped(one * width + two)
        self.one, self.two = np.divmod(keys, width)

    def counts(self) -> Int64s:
        """Return the number of rows in each group."""
        return np.bincount(self._group, minlength=len(self.one))

    def sums(self, values: NDArray[Any]) -> Int64s:
        """Return each group's sum of integers, exact below 2^53."""
        return np.bincount(self._group, weights=values, minlength=len(self.one)).astype(np.int64)

    def maxima(self, values: Real) -> Real:
        """Return each group's maximum, ignoring NaN; NaN if the group has no number."""
        found = np.full(len(self.one), np.nan)
        np.fmax.at(found, self._group, values)
        return found


def _grouped(keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct keys, sorted, and the index of each of ``keys`` among them."""
    if int(keys.max(initial=0)) > 4 * len(keys):
        return np.unique(keys, return_inverse=True)
    present = np.zeros(int(keys.max(initial=-1)) + 1, np.bool_)
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]


def encode(values: Int64s) -> tuple[Int64s, int]:
    """Encode values as numbers in no particular order; return them and how many there are."""
    coded = pa.array(values).dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)


def occurrences(keys: Int64s, among: Int64s) -> Int64s:
    """Return how often each key occurs in ``among``, which is sorted."""
    return np.searchsorted(among, keys, side="right") - np.searchsorted(among, keys, side="left")
