"""The journal: the rows buffered for the archive's next files, on disk, so that they survive if the process is killed.

Rules:

1. All rows of a snapshot are appended in one write before the snapshot is accepted. Nothing is synced: the rows survive a crash
   of the process, not of the machine.
2. Once the rows have been written to files, the journal is emptied.
3. After a kill, the next writer writes the remaining rows to files, except for snapshots that are already in a file: the kill
   may have happened between the two steps of rule 2.
4. A truncated end is ignored: it was never acknowledged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from detector.archive.rows.schema import TABLES

FILE = "archive-journal"
_HEAD = struct.Struct(">4sBQI")
_MAGIC = b"stj1"
_NAMES = sorted(TABLES)
BYTES_MAX = 2**30
"""Read limit; no writer's journal is larger."""


class Journal:
    """The journal of one writer. Raises ``OSError`` if the disk fails."""

    def __init__(self, directory: Path) -> None:
        """``directory``: the service's data directory."""
        self._path = directory / FILE

    def append(self, tables: Mapping[str, pa.Table]) -> None:
        """Append a snapshot's rows (rule 1)."""
        frames = b"".join(part for name, table in tables.items() if table.num_rows for part in _frame(name, table))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            at = file.seek(0, 2)
            try:
                written = file.write(frames)
            except OSError:
                file.truncate(at)
                raise
            if written != len(frames):
                file.truncate(at)
                raise OSError(28, "No space left on device", str(self._path))

    def clear(self) -> None:
        """Empty the journal (rule 2)."""
        self._path.unlink(missing_ok=True)

    def read(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the entries in the order of writing, up to a truncated end (rule 4)."""
        try:
            with self._path.open("rb") as file:
                content = file.read(BYTES_MAX)
        except FileNotFoundError:
            return
        at = 0
        while at + _HEAD.size <= len(content):
            magic, number, length, sum_ = _HEAD.unpack_from(content, at)
            at += _HEAD.size
            body = content[at : at + length]
            at += length
            if magic != _MAGIC or number >= len(_NAMES) or len(body) != length or zlib.crc32(body) != sum_:
                return
            name = _NAMES[number]
            try:
                with pa.ipc.open_stream(body) as reader:
                    table = reader.read_all()
            except (pa.ArrowException, OSError):
                return
            if table.schema.equals(TABLES[name]):
                yield name, table


def _frame(name: str, table: pa.Table) -> tuple[bytes, memoryview]:
    """Return a table's header and its rows, compressed to an eighth, which is faster than writing them uncompressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    body = memoryview(sink.getvalue())
    return _HEAD.pack(_MAGIC, _NAMES.index(name), len(body), zlib.crc32(body)), body
