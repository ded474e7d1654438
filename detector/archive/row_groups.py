"""Combines a file's row groups into spans of complete snapshots, and selects the columns to read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


class Span(NamedTuple):
    """Row groups that together hold complete snapshots, from ``low`` to ``high``."""

    groups: tuple[int, ...]
    low: int
    high: int
    rows: int = 0


SNAPSHOT_MAX = 2**63 - 1


def whole_groups(data: pa.Table, bytes_max: int) -> list[tuple[int, int]]:
    """Return offset and length of row groups of about ``bytes_max`` in rows sorted by snapshot; none splits a snapshot."""
    wanted = max(1, int(data.num_rows * min(1.0, bytes_max / max(data.nbytes, 1))))
    if wanted >= data.num_rows:
        return [(0, data.num_rows)]
    numbers = pc.fill_null(data.column("snapshot"), 0).to_numpy()
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    places = np.searchsorted(begins, np.arange(0, data.num_rows, wanted))
    cuts = np.unique(begins[places[places < len(begins)]]).tolist()
    return [(low, high - low) for low, high in pairwise([*cuts, data.num_rows])]


def spans_of(footer: pq.FileMetaData) -> tuple[Span, ...]:
    """Combine neighbouring row groups that share a snapshot, or may share one.

    The column is found by name: other tools write columns in another order.
    """
    spans: list[Span] = []
    column = _column_of(footer, "snapshot")
    last: int | None = None
    for group in range(footer.num_row_groups):
        numbers = None if column is None else footer.row_group(group).column(column).statistics
        known = numbers is not None and bool(numbers.has_min_max)
        low, high = (numbers.min, numbers.max) if numbers is not None and known else (0, SNAPSHOT_MAX)
        if spans and (last is None or not known or low == last):
            before = spans.pop()
            groups, rows = (*before.groups, group), before.rows + footer.row_group(group).num_rows
            spans.append(Span(groups, min(before.low, low), max(before.high, high), rows))
        else:
            spans.append(Span((group,), low, high, footer.row_group(group).num_rows))
        last = high if known else None
    return tuple(spans)


def archive_of(footer: pq.FileMetaData) -> str:
    """Return the id of the detector that wrote a file, the only value of its column ``archive``; empty in older files."""
    column = _column_of(footer, "archive")
    if column is None or not footer.num_row_groups:
        return ""
    statistics = footer.row_group(0).column(column).statistics
    return str(statistics.min) if statistics is not None and statistics.has_min_max else ""


def _column_of(footer: pq.FileMetaData, name: str) -> int | None:
    """Return the index of a column of plain values, or None if there is no such column."""
    return next((at for at in range(footer.num_columns) if footer.schema.column(at).path == name), None)


def paths_for(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    """Return the paths of the file's columns and nested fields that ``schema`` has."""
    wanted = {path for field in schema for path in _leaves(field.name, field.type)}
    paths = [file.schema.column(at).path for at in range(len(file.schema))]
    return [path for path in paths if _plain(path) in wanted]


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(kind):
        yield from _leaves(path, kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key", kind.key_type)
        yield from _leaves(f"{path}.value", kind.item_type)
    else:
        yield path


def _plain(path: str) -> str:
    """Return a column's path without the levels that Parquet inserts."""
    return path.replace(".list.element", "").replace(".list.item", "").replace(".key_value.", ".")
