"""Removes duplicate rows, and separates the rows of several archives in one folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Whole, whole

KEYS = {"reports": ("archive", "snapshot", "process"), "snapshots": ("archive", "snapshot")}
"""The columns that identify a row of each table."""


def once(rows: pa.Table, keys: Sequence[str] = KEYS["reports"]) -> pa.Table:
    """``rows`` sorted by ``keys``, of those with equal keys the first; a null is the empty text. Sorted rows are not copied."""
    ranks = [_ranks(rows.column(name)) for name in keys if name in rows.column_names]
    if rows.num_rows < 2 or _rising(ranks):
        return rows
    order = np.lexsort(ranks[::-1])
    changed = np.any([np.diff(rank[order]) != 0 for rank in ranks], axis=0)
    return rows.take(pa.array(order[np.append(True, changed)]))


def mixed(rows: pa.Table) -> NDArray[np.bool_]:
    """Which rows are of a snapshot that has begun at several times: two detectors have given it that number.

    Only archives from before detectors had ids, or without one, can be mixed so.
    """
    if not rows.num_rows or _has_ids(rows):
        return np.zeros(rows.num_rows, np.bool_)
    numbers, at = np.unique(_ranks(rows.column("snapshot")), return_inverse=True)
    if "archive" in rows.column_names:
        at = np.unique(_ranks(rows.column("archive")) * len(numbers) + at, return_inverse=True)[1]
    begun = pc.fill_null(whole(rows.column("begun")), math.nan).to_numpy(zero_copy_only=False)
    first, last = np.full(at.max() + 1, np.inf), np.full(at.max() + 1, -np.inf)
    np.fmin.at(first, at, begun)
    np.fmax.at(last, at, begun)
    found: NDArray[np.bool_] = (first < last)[at]
    return found


def mixed_text(numbers: Sequence[int]) -> str:
    """Why these snapshots are left out."""
    return (
        f"{len(numbers)} snapshots ({min(numbers)} to {max(numbers)}) began at two times: detectors without an id have "
        "written to one folder; analyse their files apart"
    )


def _has_ids(rows: pa.Table) -> bool:
    """Whether every row says which detector it is from."""
    if "archive" not in rows.column_names or rows.column("archive").null_count:
        return False
    return not pc.any(pc.equal(rows.column("archive").cast(pa.string()), "")).as_py()


def by_archive(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each archive, by its id; those without the column are one archive's."""
    if "archive" not in rows.column_names:
        yield "", rows
        return
    archives = pc.fill_null(whole(rows.column("archive")).cast(pa.string()), "")
    names = sorted(pc.unique(archives).to_pylist())
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(archives, name))


def _ranks(column: pa.ChunkedArray) -> Whole:
    """Numbers in the order of the values."""
    values = whole(column)
    if pa.types.is_integer(values.type):
        numbers: Whole = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        return numbers
    coded = pc.fill_null(values.cast(pa.string()), "").dictionary_encode()
    rank = np.empty(len(coded.dictionary), np.int64)
    rank[pc.array_sort_indices(coded.dictionary).to_numpy()] = np.arange(len(rank))
    ranked: Whole = rank[coded.indices.to_numpy(zero_copy_only=False)]
    return ranked


def _rising(ranks: Sequence[Whole]) -> bool:
    """Whether each row's keys are greater than those of the one before."""
    steps = [np.diff(rank) for rank in ranks]
    greater = np.zeros(len(steps[0]), np.bool_)
    for step in reversed(steps):
        greater = (step > 0) | ((step == 0) & greater)
    return bool(greater.all())
