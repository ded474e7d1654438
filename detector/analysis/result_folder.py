"""The output folder of an analysis: result tables as Parquet on any storage, committed all together by one small file.

Rules:

1. The files of a table lie in ``TABLE/``, or in ``TABLE/day=YYYY-MM-DD/`` of the archive's day that they were made from, under
   names that are never used twice.
2. ``_manifest/NUMBER.json`` says which files the results are. The newest counts. It is written last and in one step: what is
   cut short before leaves the earlier results whole.
3. Files that the newest manifest does not name are removed after it is there. So the folders alone say the same, but for the
   time of an analysis: who reads meanwhile takes the files that the manifest names.
4. A manifest says of each day what its files were made from (``sources``): an analysis that would make them from the same again
   keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.rows.local_state_rows import Row
from detector.ops.atomic_file import write_atomically

MANIFEST = "_manifest"
VERSION = 1
OCCUPANTS = {
    "reports": "an archive",
    "snapshots": "an archive",
    MANIFEST: "the results of an analysis",
    "_stream": "the results of a stream",
    "verdicts/batch=": "the results of a stream",
}
"""By the beginnings of its folders, what may already be in a folder for results."""


class CountsError(RuntimeError):
    """What was read and what was written do not agree; one line with the numbers."""


def check_rows(told: int, written: int, where: str, *, shared: str = "--out") -> None:
    """The verdicts that the workers said they wrote are those that are there. Raises :class:`CountsError`."""
    if written != told:
        raise CountsError(f"expected {told} verdicts in {where}, found {written}: do all workers share {shared}?")


def check_unoccupied(location: str, own: Sequence[str]) -> None:
    """Raises :class:`ArchiveError` when there is an archive here, or another command's results: ours would replace them.

    Parameters
    ----------
    own : those of :data:`OCCUPANTS` that may be here.
    """
    store = ArchiveFiles(location)
    names = {folder: _folders(store, folder) for folder in ("", "verdicts")}
    for occupant, what in OCCUPANTS.items():
        folder, _, beginning = occupant.rpartition("/")
        exact = not beginning.endswith("=")
        if occupant not in own and any(name == beginning if exact else name.startswith(beginning) for name in names[folder]):
            raise ArchiveError(f"{location}: this folder has {what} in it; use another one for these results")


def _folders(store: ArchiveFiles, folder: str) -> list[str]:
    """The names of the folders in one of ``store``."""
    found = store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/{folder}".rstrip("/"), allow_not_found=True))
    return [entry.base_name for entry in found if entry.type == fs.FileType.Directory]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One file of a table: its ``path`` from the output folder on, and how many rows it has."""

    path: str
    rows: int

    @property
    def day(self) -> str:
        """The day of its folder; empty if the table is not split by day."""
        folder = self.path.rpartition("/")[0].rpartition("/")[2]
        return folder.removeprefix("day=") if folder.startswith("day=") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files of each table, and by ``TABLE/DAY`` what a day's files were made from."""

    number: int = 0
    tables: Mapping[str, tuple[ResultFile, ...]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION

    def of_day(self, table: str, day: str, source: str) -> tuple[ResultFile, ...] | None:
        """The files of a day that were made from ``source``; None when there are none."""
        if self.sources.get(f"{table}/{day}") != source:
            return None
        return tuple(file for file in self.tables.get(table, ()) if file.day == day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Result tables at ``location``: a directory or a URI, shared by all who write or read them. ``run`` names new files."""

    location: str
    run: str = field(default_factory=lambda: uuid4().hex[:12])

    def last(self) -> Manifest:
        """What was committed last; nothing before the first."""
        store = ArchiveFiles(self.location)
        found = sorted(entry.path for entry in _entries(store, MANIFEST) if entry.base_name.endswith(".json"))
        if not found:
            return Manifest()
        with store.filesystem.open_input_file(found[-1]) as source:
            raw: dict[str, Any] = json.loads(source.read())
        if raw.get("version") != VERSION:
            return Manifest(number=raw["number"])
        tables = {name: tuple(ResultFile(**file) for file in files) for name, files in raw["tables"].items()}
        return Manifest(**raw | {"tables": tables})

    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest`` the results (rule 2), then remove what it does not name (rule 3)."""
        name = f"{MANIFEST}/{manifest.number:012d}.json"
        self.write_text(name, json.dumps(asdict(manifest), indent=1) + "\n")
        named = {file.path for files in manifest.tables.values() for file in files} | {name}
        store = ArchiveFiles(self.location)
        tables = [*manifest.tables, MANIFEST]
        paths = [entry.path for table in tables for entry in _entries(store, table)]
        store.remove(path for path in paths if path.removeprefix(f"{store.root}/") not in named)

    def write(self, table: str, rows: Sequence[Row], schema: pa.Schema) -> ResultFile:
        """A small table, in one file."""
        return self.write_part(table, "", 0, [pa.Table.from_pylist(list(rows), schema=schema)], schema)

    def write_part(self, table: str, day: str, part: int, tables: Iterable[pa.Table], schema: pa.Schema) -> ResultFile:
        """One file of a table and day. A part that is written again replaces the one before."""
        store = ArchiveFiles(self.location)
        folder = f"{table}/day={day}" if day else table
        store.filesystem.create_dir(f"{store.root}/{folder}", recursive=True)
        aside = f"{store.root}/{folder}/_part-{part:05d}-{uuid4().hex[:8]}"
        path = f"{folder}/part-{self.run}-{part:05d}.parquet"
        rows = 0
        with store.filesystem.open_output_stream(aside) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for each in tables:
                writer.write_table(each)
                rows += each.num_rows
        store.filesystem.move(aside, f"{store.root}/{path}")
        return ResultFile(path=path, rows=rows)

    def read(self, files: Iterable[ResultFile], schema: pa.Schema) -> pa.Table:
        """The rows of some files, as ``schema``: some of their columns."""
        store = ArchiveFiles(self.location)
        found = [schema.empty_table()]
        for file in files:
            with store.filesystem.open_input_file(f"{store.root}/{file.path}") as source:
                rows = pq.ParquetFile(source).read(columns=schema.names, use_threads=False)
                found.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(found)

    def written(self, table: str) -> tuple[ResultFile, ...]:
        """The files of a table that this run has written, as the storage shows them from here."""
        store = ArchiveFiles(self.location)
        found = []
        for entry in sorted(_entries(store, table), key=lambda entry: str(entry.path)):
            if entry.base_name.startswith(f"part-{self.run}-"):
                with store.filesystem.open_input_file(entry.path) as source:
                    rows = pq.read_metadata(source).num_rows
                found.append(ResultFile(path=entry.path.removeprefix(f"{store.root}/"), rows=rows))
        return tuple(found)

    def write_text(self, name: str, text: str) -> None:
        """A file beside the tables, in one step: an object store shows it when it is whole, a disk renames it into place."""
        store = ArchiveFiles(self.location)
        path = f"{store.root}/{name}"
        store.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        if isinstance(store.filesystem, fs.LocalFileSystem):
            write_atomically(Path(path), text.encode())
            return
        with store.filesystem.open_output_stream(path) as sink:
            sink.write(text.encode())


def _entries(store: ArchiveFiles, table: str) -> list[Any]:
    """The files of a table's folder and its days'."""
    selector = fs.FileSelector(f"{store.root}/{table}", allow_not_found=True, recursive=True)
    return [entry for entry in store.filesystem.get_file_info(selector) if entry.type == fs.FileType.File]
