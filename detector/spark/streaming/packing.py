"""Rows of reports and headers as they come, from files or from a detector, packed by bucket: Spark moves them unopened.

Spark turns nested columns to rows and back at every exchange with Python. A packed row holds many reports as an Arrow stream,
and costs Spark what one row costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from detector.analysis.assembly import HEADER, header_rows
from detector.archive.files import ArchiveError, ArchiveFile, Store
from detector.spark.streaming.interval_set import Finished

PIECES = pa.schema([("table", pa.string()), ("path", pa.string()), ("content", pa.binary())])
"""What comes in: a file's URI, or an Arrow stream, of rows of ``reports`` or ``snapshots``."""
PACKED = pa.schema([("bucket", pa.int32()), ("content", pa.binary()), ("path", pa.string()), ("reason", pa.string())])
"""What goes on: rows of one bucket as an Arrow stream; or a file that is left out, and why."""
HEADER_COLUMNS = ("snapshot", "begun", "members", *(field.name for field in HEADER))
BYTES_AT_ONCE = 64 * 2**20

Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packing(location: str, columns: tuple[str, ...], finished: Finished, buckets: int) -> Worker:
    """A worker from ``PIECES`` to ``PACKED``: rows of finished snapshots are passed over (they are late, or come twice)."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered: dict[str, list[pa.Table]] = {"reports": [], "snapshots": []}
        held = 0
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    for rows in _opened(row, location, columns):
                        fresh = rows.filter(pa.array(~finished.has(rows.column("snapshot").to_numpy())))
                        gathered[row["table"]].append(fresh)
                        held += fresh.nbytes
                except ArchiveError as error:
                    yield _left_out(row["path"], str(error))
                if held > BYTES_AT_ONCE:
                    yield from _packed(gathered, buckets)
                    gathered, held = {"reports": [], "snapshots": []}, 0
        yield from _packed(gathered, buckets)

    return work


def opened(content: bytes) -> pa.Table:
    """The rows of a packed row."""
    return pa.ipc.open_stream(content).read_all()


def _opened(row: dict[str, str | bytes | None], location: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    table, path, content = row["table"], row["path"], row["content"]
    assert isinstance(table, str)
    wanted = columns if table == "reports" else HEADER_COLUMNS
    if isinstance(content, bytes):
        yield opened(content).select(wanted)
    elif isinstance(path, str):
        yield from _read(Store(location), table, path_of(path), wanted)


def _read(store: Store, table: str, path: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """The rows of a file; none when it was compacted: then they come with the file that replaces it."""
    try:
        yield from _file_rows(store, table, path, columns)
    except ArchiveError:
        if not store.compacted(table, path):
            raise


def _file_rows(store: Store, table: str, path: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    found = store.look(table, path)
    if not isinstance(found, ArchiveFile):
        raise ArchiveError("it was removed before it was read" if found is None else found.reason)
    for rows in store.read(found, columns=columns):
        yield rows.select(columns)


def path_of(uri: str) -> str:
    """A file's path within its filesystem, from the URI that Spark gives."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme in {"", "file"} else parts.netloc + unquote(parts.path)


def _packed(gathered: dict[str, list[pa.Table]], buckets: int) -> Iterator[pa.RecordBatch]:
    for table, pieces in gathered.items():
        if not pieces:
            continue
        rows = pa.concat_tables(pieces)
        rows = rows if table == "reports" else header_rows(rows)
        bucket = rows.column("snapshot").to_numpy() % buckets
        order = np.argsort(bucket, kind="stable")
        sorted_rows = rows.take(pa.array(order)).combine_chunks()
        ends = np.cumsum(np.bincount(bucket, minlength=buckets)).tolist()
        for at, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if high > low:
                yield _row(at, sorted_rows.slice(low, high - low))


def _row(bucket: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_arrays(
        [pa.array([bucket], pa.int32()), content, pa.nulls(1, pa.string()), pa.nulls(1, pa.string())], schema=PACKED
    )


def _left_out(path: str | None, reason: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": 0, "path": path, "reason": reason}], schema=PACKED)
