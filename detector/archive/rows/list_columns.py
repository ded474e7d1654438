"""Arrow list columns to flat arrays with lengths, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def lengths(lists: pa.Array) -> Whole:
    """(R,) the number of elements of each row; 0 for a null."""
    counts: Whole = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def offsets(lists: pa.Array) -> Whole:
    """(R + 1,) where each row's elements begin among all."""
    return np.append(0, np.cumsum(lengths(lists)))


def flattened(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Whole]:
    """The elements of all rows, and for each the row that it belongs to."""
    lists = _as_lists(whole(column))
    counts = lengths(lists)
    return lists.flatten(), np.repeat(np.arange(len(counts)), counts)


def listed(values: Any, counts: Whole, kind: pa.DataType) -> pa.Array:
    """``values`` cut into lists of ``counts`` elements, as a column of type ``kind``."""
    begins = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=begins[1:])
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.ListArray.from_arrays(pa.array(begins), array.cast(kind.value_type), type=kind)


def _as_lists(column: pa.Array) -> pa.Array:
    """Maps as lists of ``key`` and ``value``, which Arrow has the functions for."""
    if not pa.types.is_map(column.type):
        return column
    entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    return pa.ListArray.from_arrays(column.offsets, entries)
