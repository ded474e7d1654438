"""The output folder of an analysis: one Parquet folder per result table, written atomically on any filesystem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from detector.archive.files import ArchiveFiles
from detector.archive.local_state_rows import Row


class CountsError(RuntimeError):
    """What was read and what was written do not agree; one line with the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Result tables at ``location``: a directory or a URI, shared by all who write or read them."""

    location: str

    def begin(self, table: str) -> None:
        """An empty table: what an earlier analysis left is removed."""
        store = ArchiveFiles(self.location)
        self._remove(store, table)
        store.filesystem.create_dir(f"{store.root}/{table}", recursive=True)

    def write(self, table: str, rows: Sequence[Row], schema: pa.Schema) -> None:
        """A small table, in one file."""
        self.begin(table)
        self.write_part(table, 0, [pa.Table.from_pylist(list(rows), schema=schema)], schema)

    def write_part(self, table: str, part: int, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
        """One file of a table; how many rows it has. A part that is written again replaces the one before."""
        store = ArchiveFiles(self.location)
        folder = f"{store.root}/{table}"
        store.filesystem.create_dir(folder, recursive=True)
        aside = f"{folder}/_part-{part:05d}-{uuid4().hex[:8]}"
        rows = 0
        with store.filesystem.open_output_stream(aside) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for each in tables:
                writer.write_table(each)
                rows += each.num_rows
        store.filesystem.move(aside, f"{folder}/part-{part:05d}.parquet")
        return rows

    def write_text(self, name: str, text: str) -> None:
        """A file beside the tables."""
        store = ArchiveFiles(self.location)
        with store.filesystem.open_output_stream(f"{store.root}/{name}") as sink:
            sink.write(text.encode())

    def rows(self, table: str) -> int:
        """How many rows a table has, as its files say from here."""
        store = ArchiveFiles(self.location)
        found = 0
        for entry in store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/{table}", allow_not_found=True)):
            if entry.base_name.endswith(".parquet") and not entry.base_name.startswith("_"):
                with store.filesystem.open_input_file(entry.path) as source:
                    found += pq.read_metadata(source).num_rows
        return found

    def remove(self, names: Iterable[str]) -> None:
        """Files beside the tables go."""
        store = ArchiveFiles(self.location)
        store.remove(f"{store.root}/{name}" for name in names)

    def _remove(self, store: ArchiveFiles, table: str) -> None:
        info: Any = store.filesystem.get_file_info(f"{store.root}/{table}")
        if info.type == fs.FileType.Directory:
            store.filesystem.delete_dir(info.path)
