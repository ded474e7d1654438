"""Converts Arrow list columns to flat arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def lengths(lists: pa.Array) -> Int64s:
    """Return (R,) the number of elements in each row; 0 for a null."""
    counts: Int64s = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def offsets(lists: pa.Array) -> Int64s:
    """Return (R + 1,) the offset of each row's elements among all elements."""
    return np.append(0, np.cumsum(lengths(lists)))


def flattened(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Int64s]:
    """Return the elements of all rows, and the row of each element."""
    lists = _as_lists(combined(column))
    counts = lengths(lists)
    return lists.flatten(), np.repeat(np.arange(len(counts)), counts)


def listed(values: Any, counts: Int64s, kind: pa.DataType) -> pa.Array:
    """Split ``values`` into lists of ``counts`` elements; return a column of type ``kind``."""
    begins = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=begins[1:])
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.ListArray.from_arrays(pa.array(begins), array.cast(kind.value_type), type=kind)


def _as_lists(column: pa.Array) -> pa.Array:
    """Convert a map column to lists of ``key`` and ``value``, which Arrow has functions for."""
    if not pa.types.is_map(column.type):
        return column
    entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    return pa.ListArray.from_arrays(column.offsets, entries)
