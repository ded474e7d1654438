"""The output folder of an analysis: result tables as Parquet on any storage, committed together by one small file.

Rules:

1. A table's files are in ``TABLE/``, or in ``TABLE/day=YYYY-MM-DD/`` for the archive's day they were made from. File names are
   never reused.
2. ``_manifest/NUMBER.json`` names the files that make up the results; the newest manifest counts. It is written last and
   atomically, so an interrupted analysis leaves the earlier results intact.
3. Once a manifest is written, all files that it does not name are removed. The folders alone give the same results except
   while an analysis runs; to read during one, take the files that the manifest names.
4. For each day the manifest records a fingerprint of its inputs (``sources``). A later analysis of the same inputs keeps the
   day's files, if they are all there.
5. Only one analysis at a time writes here, since each removes the files of the others (rule 3). In a local directory a second
   one is refused; elsewhere the one that commits last fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from detector.archive.directory_lock import directory_lock
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.rows.local_state_rows import Row
from detector.ops.files.atomic_file import write_atomically

MANIFEST = "_manifest"
LOCK = "_analyzing"
VERSION = 1
OCCUPANTS = {
    "reports": "an archive",
    "snapshots": "an archive",
    MANIFEST: "the results of an analysis",
    "_stream": "the results of a stream",
    "verdicts/batch=": "the results of a stream",
}
"""Folder names, or their prefixes (ending in ``=``), and what a folder that contains them is."""


class CountsError(RuntimeError):
    """The numbers of rows read and written do not match; the message is one line with both numbers."""


def check_rows(expected: int, written: int, where: str, *, shared: str = "--out") -> None:
    """Raise :class:`CountsError` unless all verdicts that the workers wrote are found."""
    if written != expected:
        raise CountsError(f"expected {expected} verdicts in {where}, found {written}: do all workers share {shared}?")


def check_unoccupied(location: str, own: Sequence[str]) -> None:
    """Raise :class:`ArchiveError` if the folder has an archive, or another command's results, which would be overwritten.

    Parameters
    ----------
    own : the :data:`OCCUPANTS` that are allowed.
    """
    store = ArchiveFiles(location)
    names = {folder: _folders(store, folder) for folder in ("", "verdicts")}
    for occupant, what in OCCUPANTS.items():
        folder, _, beginning = occupant.rpartition("/")
        exact = not beginning.endswith("=")
        if occupant not in own and any(name == beginning if exact else name.startswith(beginning) for name in names[folder]):
            raise ArchiveError(f"{location}: this folder contains {what}; choose another folder for these results")


def _folders(store: ArchiveFiles, folder: str) -> list[str]:
    """Return the names of the folders in a folder of ``store``."""
    found = store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/{folder}".rstrip("/"), allow_not_found=True))
    return [entry.base_name for entry in found if entry.type == fs.FileType.Directory]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One file of a table: its ``path`` relative to the output folder, and its number of rows."""

    path: str
    rows: int

    @property
    def day(self) -> str:
        """The file's day; empty if the table is not split by day."""
        folder = self.path.rpartition("/")[0].rpartition("/")[2]
        return folder.removeprefix("day=") if folder.startswith("day=") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files of each table, and the fingerprint of each day's inputs by ``TABLE/DAY``."""

    number: int = 0
    tables: Mapping[str, tuple[ResultFile, ...]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION

    def of_day(self, table: str, day: str, source: str) -> tuple[ResultFile, ...] | None:
        """Return a day's files if they were made from ``source``, else None."""
        if self.sources.get(f"{table}/{day}") != source:
            return None
        return tuple(file for file in self.tables.get(table, ()) if file.day == day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Result tables at ``location``, a directory or a URI that all workers can reach. ``run`` is part of new files' names."""

    location: str
    run: str = field(default_factory=lambda: uuid4().hex[:12])

    @contextmanager
    def sole_writer(self) -> Iterator[None]:
        """Refuse other analyses during the block (rule 5). Raises :class:`ArchiveError` if there is one."""
        store = ArchiveFiles(self.location)
        if isinstance(store.filesystem, fs.LocalFileSystem):
            store.filesystem.create_dir(store.root, recursive=True)
        with directory_lock(store, LOCK, "another analysis"):
            yield

    def last(self) -> Manifest:
        """Return the newest manifest; one without tables if there is none, or it is damaged or of another version."""
        store = ArchiveFiles(self.location)
        found = max((entry.path for entry in _entries(store, MANIFEST) if entry.base_name.endswith(".json")), default="")
        if not found:
            return Manifest()
        number = found.rpartition("/")[2].removesuffix(".json")
        with store.filesystem.open_input_file(found) as source:
            return _parsed(source.read()) or Manifest(number=int(number) if number.isdecimal() else 0)

    def intact(self, files: Iterable[ResultFile]) -> bool:
        """Whether all files are there and have their number of rows."""
        store = ArchiveFiles(self.location)
        for file in files:
            try:
                with store.filesystem.open_input_file(f"{store.root}/{file.path}") as source:
                    if pq.read_metadata(source).num_rows != file.rows:
                        return False
            except (pa.ArrowException, OSError):
                return False
        return True

    def commit(self, manifest: Manifest) -> None:
        """Commit ``manifest`` (rule 2), then remove the files that it does not name (rule 3).

        Raises
        ------
        CountsError
            If another analysis has committed since the manifest before this one, or has removed files that this one names.
        """
        if self.last().number >= manifest.number:
            raise CountsError(f"another analysis has written to {self.location} meanwhile; run this one again")
        name = f"{MANIFEST}/{manifest.number:012d}.json"
        self.write_text(name, json.dumps(asdict(manifest), indent=1) + "\n")
        named = {file.path for files in manifest.tables.values() for file in files} | {name}
        store = ArchiveFiles(self.location)
        tables = [*manifest.tables, MANIFEST]
        paths = [entry.path for table in tables for entry in _entries(store, table)]
        store.remove(path for path in paths if path.removeprefix(f"{store.root}/") not in named)
        present = {entry.path.removeprefix(f"{store.root}/") for table in tables for entry in _entries(store, table)}
        if gone := sorted(named - present):
            raise CountsError(
                f"another analysis has removed files of this one from {self.location} ({gone[0]}): run this one again"
            )

    def write(self, table: str, rows: Sequence[Row], schema: pa.Schema) -> ResultFile:
        """Write a small table as one file."""
        return self.write_part(table, "", 0, [pa.Table.from_pylist(list(rows), schema=schema)], schema)

    def write_part(self, table: str, day: str, part: int, tables: Iterable[pa.Table], schema: pa.Schema) -> ResultFile:
        """Write one file of a table and day. A part that is written twice replaces the first."""
        store = ArchiveFiles(self.location)
        folder = f"{table}/day={day}" if day else table
        store.filesystem.create_dir(f"{store.root}/{folder}", recursive=True)
        temporary = f"{store.root}/{folder}/_part-{part:05d}-{uuid4().hex[:8]}"
        path = f"{folder}/part-{self.run}-{part:05d}.parquet"
        rows = 0
        output = store.filesystem.open_output_stream(temporary)
        with output as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for each in tables:
                writer.write_table(each)
                rows += each.num_rows
        store.filesystem.move(temporary, f"{store.root}/{path}")
        return ResultFile(path=path, rows=rows)

    def read(self, files: Iterable[ResultFile], schema: pa.Schema) -> pa.Table:
        """Read the columns of ``schema`` from files. Raises :class:`ArchiveError` if one is damaged."""
        store = ArchiveFiles(self.location)
        found = [schema.empty_table()]
        for file in files:
            try:
                with store.filesystem.open_input_file(f"{store.root}/{file.path}") as source:
                    rows = pq.ParquetFile(source).read(columns=schema.names, use_threads=False)
                    found.append(rows.select(schema.names).cast(schema))
            except (pa.ArrowException, OSError) as error:
                text = " ".join(str(error).split())[:300]
                raise ArchiveError(f"{self.location}/{file.path}: {text}; --again evaluates everything anew") from None
        return pa.concat_tables(found)

    def written(self, table: str) -> tuple[ResultFile, ...]:
        """List the files of a table that this run has written, as seen by this process."""
        store = ArchiveFiles(self.location)
        found = []
        for entry in sorted(_entries(store, table), key=lambda entry: str(entry.path)):
            if entry.base_name.startswith(f"part-{self.run}-"):
                with store.filesystem.open_input_file(entry.path) as source:
                    rows = pq.read_metadata(source).num_rows
                found.append(ResultFile(path=entry.path.removeprefix(f"{store.root}/"), rows=rows))
        return tuple(found)

    def write_text(self, name: str, text: str) -> None:
        """Write a file beside the tables atomically: by renaming on a disk; object stores show only complete files."""
        store = ArchiveFiles(self.location)
        path = f"{store.root}/{name}"
        store.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        if isinstance(store.filesystem, fs.LocalFileSystem):
            write_atomically(Path(path), text.encode())
            return
        with store.filesystem.open_output_stream(path) as sink:
            sink.write(text.encode())


def _parsed(text: bytes) -> Manifest | None:
    """Parse a manifest; None if it is damaged or of another version."""
    try:
        raw: dict[str, Any] = json.loads(text)
        tables = {name: tuple(ResultFile(**file) for file in files) for name, files in raw["tables"].items()}
        found = Manifest(**raw | {"tables": tables})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.version == VERSION else None


def _entries(store: ArchiveFiles, table: str) -> list[Any]:
    """List the files in a table's folder and in its days' folders."""
    selector = fs.FileSelector(f"{store.root}/{table}", allow_not_found=True, recursive=True)
    return [entry for entry in store.filesystem.get_file_info(selector) if entry.type == fs.FileType.File]
