"""Packs rows of reports and headers, from files or a detector, by bucket, so that Spark moves them undecoded.

Spark converts nested columns to rows and back at every exchange with Python. A packed row holds many reports as an Arrow
stream, for the cost of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from detector.analysis.assembly import HEADER_SOURCE, header_rows
from detector.archive.deduplicate import ambiguity_text, by_archive
from detector.archive.files import ArchiveError, ArchiveFile, ArchiveFiles
from detector.archive.rows.schema import REPORTS, conformed
from detector.spark.streaming.interval_set import EMPTY
from detector.spark.streaming.progress import Progress
from detector.spark.streaming.storage import Storage

PIECES = pa.schema(
    [("table", pa.string()), ("path", pa.string()), ("bytes", pa.int64()), ("content", pa.binary()), ("until", pa.int64())]
)
"""The input, rows of ``reports`` or ``snapshots``: a file's path and size; or an Arrow stream of a detector's rows (null if
there are none) and the position where it ends."""
PACKED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("content", pa.binary()),
        ("late", pa.int64()),
        ("path", pa.string()),
        ("reason", pa.string()),
        ("bytes", pa.int64()),
        ("table", pa.string()),
        ("until", pa.int64()),
        ("mixed", pa.list_(pa.int64())),
    ]
)
"""The output, one of: rows of one bucket as an Arrow stream; the number of reports that arrived too late; a file that is left
out and the reason, with the snapshots whose number another detector has used; what has been read, as a file and its size or a
position in a table. A damaged file counts as not read."""
BYTES_AT_ONCE = 64 * 2**20
TRIES = 2
"""How often a file is tried before it counts as damaged: remote storage may fail briefly."""

Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packer(location: str, columns: tuple[str, ...], before: Progress, state: Storage | None = None) -> Worker:
    """Return a worker from ``PIECES`` to ``PACKED``. It skips rows of finished snapshots, which are late or duplicates.

    If such rows have another start time, they are another detector's, and are reported; ``state`` has the start times.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        starts = _StartTimes(state, before)
        gathered: dict[str, list[pa.Table]] = {"reports": [], "snapshots": []}
        held = late = 0
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    for rows, compacted in _rows_of(row, location, columns):
                        fresh, dropped = _unfinished(rows, before)
                        late += dropped if row["table"] == "reports" and not compacted else 0
                        gathered[row["table"]].append(fresh)
                        held += fresh.nbytes
                        yield from _mixed(starts.contradicted(rows), row["path"])
                except ArchiveError as error:
                    yield _row({"bucket": 0, "path": row["path"], "reason": error.reason})
                else:
                    yield from _read_up_to(row)
                if held > BYTES_AT_ONCE:
                    yield from _packed(gathered, before.buckets)
                    gathered, held = {"reports": [], "snapshots": []}, 0
        yield from _packed(gathered, before.buckets)
        if late:
            yield _row({"bucket": 0, "late": late})

    return work


def _read_up_to(row: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield what has been read once this piece has been."""
    if row.get("bytes") is not None:
        yield _row({"bucket": 0, "path": row["path"], "bytes": row["bytes"]})
    if row.get("until") is not None:
        yield _row({"bucket": 0, "table": row["table"], "until": row["until"]})


def _unfinished(rows: pa.Table, before: Progress) -> tuple[pa.Table, int]:
    """Return the rows of unfinished snapshots, and the number of rows of snapshots that were closed incomplete."""
    kept, late = [rows.slice(0, 0)], 0
    for archive, own in by_archive(rows):
        numbers = own.column("snapshot").to_numpy()
        kept.append(own.filter(pa.array(~before.finished.get(archive, EMPTY).has(numbers))))
        late += int(before.closed.get(archive, EMPTY).has(numbers).sum())
    return pa.concat_tables(kept), late


class _StartTimes:
    """The start times of the finished snapshots of an archive without an id, read on first use."""

    def __init__(self, state: Storage | None, before: Progress) -> None:
        self._state, self._before = state, before
        self._known: dict[int, float] | None = None

    def contradicted(self, rows: pa.Table) -> list[int]:
        """Return the finished snapshots whose start time in ``rows`` differs."""
        if self._state is None or not self._before.began:
            return []
        own = next((own for archive, own in by_archive(rows) if not archive), rows.slice(0, 0))
        numbers = own.column("snapshot").to_numpy()
        done = self._before.finished.get("", EMPTY).has(numbers)
        if not done.any():
            return []
        known = self._times(self._state)
        pairs = set(zip(numbers[done].tolist(), own.column("begun").to_numpy()[done].tolist(), strict=True))
        return sorted({number for number, begun in pairs if number in known and begun not in (known[number], None)})

    def _times(self, state: Storage) -> dict[int, float]:
        if self._known is None:
            self._known = {}
            for name in self._before.began.values():
                self._known |= times_of(state.read(name))
        return self._known


def times_of(content: bytes | pa.Buffer) -> dict[int, float]:
    """Read the start time of each snapshot from a file of the state."""
    rows = pa.ipc.open_file(content).read_all()
    return dict(zip(rows.column("snapshot").to_pylist(), rows.column("begun").to_pylist(), strict=True))


def times_file(times: Mapping[int, float]) -> pa.Buffer:
    """Return the content of a file for :func:`times_of`."""
    rows = pa.table({"snapshot": pa.array(times.keys(), pa.int64()), "begun": pa.array(times.values(), pa.float64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _mixed(numbers: list[int], path: str | None) -> Iterator[pa.RecordBatch]:
    if numbers:
        yield _row({"bucket": 0, "path": path or "", "reason": ambiguity_text(numbers), "mixed": numbers})


def unpacked(content: bytes) -> pa.Table:
    """Return the rows of a packed row."""
    return pa.ipc.open_stream(content).read_all()


def _rows_of(row: dict[str, Any], location: str, columns: tuple[str, ...]) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the rows of a piece, and whether they may have been read before, from files that compaction replaced."""
    table, path, content = row["table"], row.get("path"), row.get("content")
    schema = pa.schema([REPORTS.field(name) for name in columns]) if table == "reports" else HEADER_SOURCE
    if isinstance(content, bytes):
        yield conformed(unpacked(content), schema), False
    elif isinstance(path, str):
        yield from _read(ArchiveFiles(location), table, path, schema)


def _read(store: ArchiveFiles, table: str, path: str, schema: pa.Schema) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the rows of a file; none if it was compacted, since the file that replaces it has them.

    Raises
    ------
    ArchiveError
        If it is damaged.
    OSError
        If the storage does not answer.
    """
    for left in reversed(range(TRIES)):
        try:
            found = _file_at(store, table, path)
            for group in range(found.groups):
                yield store.read_parts(found, schema, [group]), bool(found.replaces)
        except ArchiveError:
            if store.compacted(table, path):
                return
            if not left:
                raise
        else:
            return


def _file_at(store: ArchiveFiles, table: str, path: str) -> ArchiveFile:
    found = store.file_at(table, path)
    if isinstance(found, ArchiveFile):
        return found
    raise ArchiveError("it was removed before it was read" if found is None else found.reason, path)


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
                yield _row({"bucket": at, "content": _stream(sorted_rows.slice(low, high - low))})


def _row(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=PACKED)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
