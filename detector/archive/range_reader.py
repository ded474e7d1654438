"""Reads the rows of a table between two positions as Arrow batches of bounded size, which the detector streams to clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from detector.archive.files import ArchiveError
from detector.archive.offsets import Index, Piece
from detector.archive.rows.schema import TABLES, conformed

ROWS_MAX = 16_384
BYTES_MAX = 4 * 2**20


class LostError(Exception):
    """Rows between two positions are missing; the message is one line that names the positions."""


class ColumnError(ValueError):
    """The table has no such column; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Rows at the positions from ``since`` to ``until``, exclusive."""

    rows: pa.RecordBatch
    since: int
    until: int

    def message(self) -> bytes:
        """Return the rows as an encapsulated Arrow message; a stream begins with :func:`schema_message`."""
        content: bytes = self.rows.serialize().to_pybytes()
        return content


def schema_message(schema: pa.Schema) -> bytes:
    """Return a schema as an encapsulated Arrow message."""
    content: bytes = schema.serialize().to_pybytes()
    return content


def columns_schema(table: str, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of ``columns`` in the order of ``table``; all if empty. Raises :class:`ColumnError`."""
    schema = TABLES[table]
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise ColumnError(f"no column {unknown[0]!r} in {table}; available: {', '.join(schema.names)}")
    return pa.schema([field for field in schema if not columns or field.name in columns])


def read_range(
    index: Index,
    since: int,
    until: int,
    *,
    schema: pa.Schema,
    whole: bool = False,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[Batch]:
    """Yield the rows from position ``since`` to ``until``, exclusive, in batches that are read lazily.

    Parameters
    ----------
    index : refreshed if a file is gone, since compaction may have replaced it.
    schema : the columns to read, from :func:`columns_schema`.
    whole : raise if any row is lost; by default lost rows are skipped.
    rows_max, bytes_max : bounds of a batch; a single row may be larger.

    Raises
    ------
    LostError
        With ``whole``, if rows are missing or a file is damaged.
    """
    at = since
    while at < until:
        if whole and (gap := index.lost(at, until)) is not None and gap[0] == at:
            raise LostError(_lost_text(index, *gap))
        piece = index.at(at)
        if piece is None or piece.first >= until:
            return
        try:
            for batch in _piece_batches(index, piece, max(at, piece.first), min(piece.end, until), schema, rows_max):
                for part in _bounded(batch, bytes_max):
                    yield part
                    at = part.until
        except ArchiveError as error:
            index.refresh()
            if index.at(at) != piece:
                continue  # compacted or removed since
            if whole:
                raise LostError(str(error)) from None
        at = max(at, min(piece.end, until))


def _piece_batches(index: Index, piece: Piece, since: int, until: int, schema: pa.Schema, rows_max: int) -> Iterator[Batch]:
    """Yield the rows of one file; row groups before ``since`` are not read."""
    skip, left = since - piece.first, until - since
    try:
        with index.store.filesystem.open_input_file(piece.file.path) as source:
            parquet = pq.ParquetFile(source)
            group = 0
            while group < parquet.num_row_groups and skip >= parquet.metadata.row_group(group).num_rows:
                skip -= parquet.metadata.row_group(group).num_rows
                group += 1
            present = [name for name in schema.names if name in parquet.schema_arrow.names]
            groups = list(range(group, parquet.num_row_groups))
            for rows in parquet.iter_batches(
                batch_size=rows_max, row_groups=groups, columns=present or ["snapshot"], use_threads=False
            ):
                part = rows.slice(skip, left)
                skip = max(0, skip - rows.num_rows)
                if part.num_rows:
                    left -= part.num_rows
                    fitting = conformed(pa.Table.from_batches([part]), schema).combine_chunks().to_batches()
                    yield Batch(rows=fitting[0], since=until - left - part.num_rows, until=until - left)
                if not left:
                    return
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(" ".join(str(error).split())[:300], piece.file.path) from None


def _bounded(batch: Batch, bytes_max: int) -> Iterator[Batch]:
    """Split a batch into parts of at most about ``bytes_max``."""
    count = batch.rows.num_rows
    step = max(1, int(count * min(1.0, bytes_max / max(batch.rows.nbytes, 1))))
    for at in range(0, count, step):
        part = batch.rows.slice(at, step)
        yield Batch(rows=part, since=batch.since + at, until=batch.since + at + part.num_rows)


def _lost_text(index: Index, since: int, until: int) -> str:
    damaged = f", or in damaged files: {', '.join(index.left_out)}" if index.left_out else ""
    return f"the {index.table} from position {since} to {until} are missing: removed to free space{damaged}"
