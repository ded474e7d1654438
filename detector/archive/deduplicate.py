"""Removes duplicate rows, and separates the rows of several archives in one folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Int64s, combined

KEYS = {"reports": ("archive", "snapshot", "process"), "snapshots": ("archive", "snapshot")}
"""The columns that identify a row of each table."""


def deduplicated(rows: pa.Table, keys: Sequence[str] = KEYS["reports"]) -> pa.Table:
    """Sort ``rows`` by ``keys`` and keep the first of equal ones; a null equals the empty text. Sorted rows are not copied."""
    ranks = [_ranks(rows.column(name)) for name in keys if name in rows.column_names]
    if rows.num_rows < 2 or _increasing(ranks):
        return rows
    order = np.lexsort(ranks[::-1])
    changed = np.any([np.diff(rank[order]) != 0 for rank in ranks], axis=0)
    return rows.take(pa.array(order[np.append(True, changed)]))


def ambiguous(rows: pa.Table) -> NDArray[np.bool_]:
    """Return which rows belong to a snapshot with several start times: two detectors have used its number.

    This can happen only in archives whose detectors have no id.
    """
    if not rows.num_rows or _has_ids(rows):
        return np.zeros(rows.num_rows, np.bool_)
    numbers, at = np.unique(_ranks(rows.column("snapshot")), return_inverse=True)
    if "archive" in rows.column_names:
        at = np.unique(_ranks(rows.column("archive")) * len(numbers) + at, return_inverse=True)[1]
    begun = pc.fill_null(combined(rows.column("begun")), math.nan).to_numpy(zero_copy_only=False)
    first, last = np.full(at.max() + 1, np.inf), np.full(at.max() + 1, -np.inf)
    np.fmin.at(first, at, begun)
    np.fmax.at(last, at, begun)
    found: NDArray[np.bool_] = (first < last)[at]
    return found


def ambiguity_text(numbers: Sequence[int]) -> str:
    """Explain why these snapshots are left out."""
    return (
        f"{len(numbers)} snapshots ({min(numbers)} to {max(numbers)}) have two start times: detectors without an id have "
        "written to the same folder; analyse their files separately"
    )


def _has_ids(rows: pa.Table) -> bool:
    """Whether every row has a detector's id."""
    if "archive" not in rows.column_names or rows.column("archive").null_count:
        return False
    return not pc.any(pc.equal(rows.column("archive").cast(pa.string()), "")).as_py()


def by_archive(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each archive's id and rows; without the column ``archive`` all rows are one archive's."""
    if "archive" not in rows.column_names:
        yield "", rows
        return
    archives = pc.fill_null(combined(rows.column("archive")).cast(pa.string()), "")
    names = sorted(pc.unique(archives).to_pylist())
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(archives, name))


def _ranks(column: pa.ChunkedArray) -> Int64s:
    """Return numbers that sort like the values."""
    values = combined(column)
    if pa.types.is_integer(values.type):
        numbers: Int64s = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        return numbers
    coded = pc.fill_null(values.cast(pa.string()), "").dictionary_encode()
    rank = np.empty(len(coded.dictionary), np.int64)
    rank[pc.array_sort_indices(coded.dictionary).to_numpy()] = np.arange(len(rank))
    ranked: Int64s = rank[coded.indices.to_numpy(zero_copy_only=False)]
    return ranked


def _increasing(ranks: Sequence[Int64s]) -> bool:
    """Whether each row's keys are greater than the previous row's."""
    steps = [np.diff(rank) for rank in ranks]
    greater = np.zeros(len(steps[0]), np.bool_)
    for step in reversed(steps):
        greater = (step > 0) | ((step == 0) & greater)
    return bool(greater.all())
