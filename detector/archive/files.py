"""The archive's files: their names, and how they are scanned, read and written.

``ROOT/TABLE/day=YYYY-MM-DD/FIRST-LAST-TOKEN.parquet`` has all rows of the snapshots FIRST to LAST, sorted by snapshot. Files
are written under a temporary name and then renamed, so readers never see part of one. Readers (ours and Spark's) skip names
that begin with ``_`` or ``.``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from detector.archive.filesystem import open_filesystem
from detector.archive.journal import FILE as JOURNAL
from detector.archive.row_groups import Span, archive_of, paths_for, spans_of, whole_groups
from detector.archive.rows.schema import REPLACES_KEY, SCHEMA_VERSION, TABLE_KEY, TABLES, VERSION_KEY, conformed, stamped
from detector.ops.files.atomic_file import sync

GROUP_BYTES_MAX = 64 * 2**20
"""Size of a row group in memory, all of which a reader has to hold."""
READERS = 8
NOT_UTF8 = "its name is not UTF-8"
POSITIONS_KEY = b"stilltrue.positions"


class ArchiveError(Exception):
    """An archive, or one of its files (``path``), cannot be used; the message is one line that names it."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.path = path
        self.reason = text


def named(location: str, reason: str) -> str:
    """``reason`` with the ``location`` that it is about in front of it, unless it names that itself."""
    names_it = reason.startswith(f"{location}: ") or ("://" in location and location in reason)
    return reason if names_it else f"{location}: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The positions of a file's rows in the order of writing (:mod:`detector.archive.offsets`).

    Its rows are at ``first``, ``first + 1`` and so on. No row of the table was written between ``after`` and ``first``.
    """

    after: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A readable file: its path in the filesystem, its folder's day, its size and its numbers of rows and row groups.

    ``spans`` groups the row groups so that no snapshot crosses two spans; ``archive`` is the id of the detector.
    """

    path: str
    table: str
    day: str
    bytes: int
    rows: int
    groups: int
    version: int
    spans: tuple[Span, ...] = ()
    archive: str = ""
    replaces: tuple[str, ...] = ()
    positions: Positions | None = None

    @property
    def name(self) -> str:
        """The file's name in its folder."""
        return PurePosixPath(self.path).name

    @property
    def snapshots(self) -> tuple[int, int] | None:
        """The first and last snapshot according to the file's name; see :func:`snapshots_of_name`."""
        return snapshots_of_name(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file that could not be read, and the reason in one line."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The files of one table: readable ones, sorted by path, and unreadable ones."""

    files: tuple[ArchiveFile, ...]
    left_out: tuple[LeftOut, ...]


FIRST_FILES = "a detector writes its first files within a minute, and when it stops"


class ArchiveFiles:
    """The archive's files, on any filesystem that pyarrow knows; a local directory by default."""

    def __init__(self, location: str) -> None:
        """``location``: a directory, or a URI such as ``s3://bucket/path`` or ``file:///var/lib/stilltrue``."""
        self.location = location
        if not _is_utf8(location):
            raise ArchiveError(f"{location!r}: {NOT_UTF8}")
        try:
            if "://" in location:
                self.filesystem, self.root = open_filesystem(location)
            else:
                self.filesystem, self.root = fs.LocalFileSystem(), os.path.abspath(location)  # noqa: PTH100 - a URI's twin
        except (pa.ArrowException, OSError, ImportError, ValueError) as error:
            raise ArchiveError(named(location, _line(error))) from None

    def check(self) -> None:
        """Raise :class:`ArchiveError` if there is no archive here."""
        if not self._has_tables(self.root):
            kind = self.filesystem.get_file_info(self.root).type
            folder = kind == fs.FileType.Directory
            missing = (
                "there is no such folder"
                if kind == fs.FileType.NotFound
                else f"none of the folders {', '.join(sorted(TABLES))}"
            )
            none = "a detector keeps one if its environment has the extra: pip install 'stilltrue-detector[archive]'"
            hint = FIRST_FILES if folder or self._has_journal() else none
            if folder and self._has_tables(f"{self.root}/archive"):
                hint = f"there is one in {self.location.rstrip('/')}/archive"
            raise ArchiveError(f"{self.location}: no archive here ({missing}); {hint}")

    def _has_journal(self) -> bool:
        """Whether a detector is gathering rows for its first files here."""
        return bool(self.filesystem.get_file_info(f"{self.root.rpartition('/')[0]}/{JOURNAL}").type == fs.FileType.File)

    def _has_tables(self, folder: str) -> bool:
        return any(self.filesystem.get_file_info(f"{folder}/{table}").type == fs.FileType.Directory for table in TABLES)

    def write(self, table: str, day: str, data: pa.Table, *, positions: Positions | None = None) -> str:
        """Write complete snapshots, sorted by snapshot, as one file; return its path. Raises OSError if the write fails."""
        numbers = data.column("snapshot")
        first, last = (numbers[0].as_py() or 0, numbers[-1].as_py() or 0) if len(numbers) else (0, 0)
        groups = [data.slice(at, size) for at, size in whole_groups(data, GROUP_BYTES_MAX)]
        return self.write_groups(table, day, groups, first=first, last=last, positions=positions)

    def write_groups(
        self,
        table: str,
        day: str,
        groups: Iterable[pa.Table],
        *,
        first: int,
        last: int,
        replaces: Sequence[str] = (),
        positions: Positions | None = None,
    ) -> str:
        """Write the snapshots ``first`` to ``last`` as one file, a row group at a time; return its path.

        ``replaces``: the names of the files in the same folder that it replaces. Raises OSError if the write fails.
        """
        folder = f"{self.root}/{table}/day={day}"
        self.filesystem.create_dir(folder, recursive=True)
        name = f"{first:012d}-{last:012d}-{uuid.uuid4().hex[:8]}.parquet"
        temporary = f"{folder}/_{name}.part"
        schema = stamped(table).with_metadata(_footer(table, replaces, positions))
        try:
            with (
                self.filesystem.open_output_stream(temporary) as sink,
                pq.ParquetWriter(sink, schema, compression="zstd") as writer,
            ):
                for group in groups:
                    writer.write_table(conformed(group, schema), row_group_size=max(1, group.num_rows))
            if isinstance(self.filesystem, fs.LocalFileSystem):
                sync(Path(temporary))  # the content must be on disk before the name
            self.filesystem.move(temporary, f"{folder}/{name}")
        except BaseException:
            self.remove([temporary])
            raise
        return f"{folder}/{name}"

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files, ignoring those that do not exist."""
        for path in paths:
            try:
                self.filesystem.delete_file(path)
            except FileNotFoundError:
                continue
            except OSError:
                if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
                    raise

    def prune(self, bytes_max: int) -> list[str]:
        """Remove the oldest files (by day, then by snapshot) until at most ``bytes_max`` are left; return their paths."""
        files = [(day, entry) for table in TABLES for day in self.days(table) for entry in self.entries(table, day)]
        total = sum(entry.size for _, entry in files)
        removed = []
        for _, entry in sorted(files, key=lambda file: (file[0], PurePosixPath(file[1].path).name)):
            if total <= bytes_max:
                break
            removed.append(entry.path)
            total -= entry.size
        self.remove(removed)
        return removed

    def prune_before(self, day: str) -> list[str]:
        """Remove the files of all days before ``day``; return their paths."""
        old = [(table, each) for table in TABLES for each in self.days(table) if each < day]
        removed = [entry.path for table, each in old for entry in self.entries(table, each)]
        self.remove(removed)
        return removed

    def days(self, table: str) -> list[str]:
        """List the days of ``table``, sorted."""
        names = (PurePosixPath(entry.path).name for entry in self.listed(table) if entry.type == fs.FileType.Directory)
        return sorted(name.removeprefix("day=") for name in names if name.startswith("day="))

    def _misplaced(self, table: str) -> Iterator[LeftOut]:
        """List the entries in the folder of ``table`` that are not a day's folder."""
        for entry in self.listed(table):
            visible = entry.type == fs.FileType.Directory or entry.base_name.endswith(".parquet")
            if visible and entry.base_name[0] not in "_." and not entry.base_name.startswith("day="):
                yield LeftOut(path=entry.path, reason="not in the folder of a day (day=YYYY-MM-DD)")

    def scan(self, table: str, *, since: str = "", until: str = "", known: Mapping[str, ArchiveFile] | None = None) -> Scan:
        """List the files of ``table`` from day ``since`` to day ``until``, both included, and read their footers.

        ``known``: files of an earlier scan, by path, whose footers need not be read again.
        """
        known = known or {}
        days = [day for day in self.days(table) if (not since or day >= since) and (not until or day <= until)]
        entries = [(day, entry) for day in days for entry in self.entries(table, day)]
        scanned: list[ArchiveFile | LeftOut] = [known[entry.path] for _, entry in entries if entry.path in known]
        new = [(day, entry) for day, entry in entries if entry.path not in known]
        if new:
            with ThreadPoolExecutor(READERS) as pool:
                scanned += pool.map(lambda each: self._read_footer(table, *each), new)
        good = [file for file in scanned if isinstance(file, ArchiveFile)]
        replaced = {f"{PurePosixPath(file.path).parent}/{name}" for file in good for name in file.replaces}
        files = sorted((file for file in good if file.path not in replaced), key=lambda file: file.path)
        left_out = [file for file in scanned if isinstance(file, LeftOut) and file.path not in replaced]
        if not since and not until:
            left_out += self._misplaced(table)
        return Scan(files=tuple(files), left_out=tuple(sorted(left_out, key=lambda file: file.path)))

    def entries(self, table: str, day: str) -> Iterator[fs.FileInfo]:
        """List the Parquet files of one day, unsorted, without opening them."""
        for entry in self.listed(f"{table}/day={day}"):
            name = PurePosixPath(entry.path).name
            if entry.type == fs.FileType.File and name.endswith(".parquet") and name[0] not in "_.":
                yield entry

    def listed(self, folder: str) -> list[fs.FileInfo]:
        """List what is in a folder, unsorted; nothing if it does not exist.

        Raises ArchiveError if a name in it is not UTF-8, since pyarrow can neither name nor open such a file.
        """
        found: list[fs.FileInfo] = self.filesystem.get_file_info(fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True))
        try:
            for entry in found:
                entry.path  # noqa: B018 - it is decoded when it is asked for
        except UnicodeDecodeError as error:
            name = error.object.rpartition(b"/")[2].decode(errors="backslashreplace")
            raise ArchiveError(f"{self.location}/{folder}/{name}: {NOT_UTF8}: rename it") from None
        return found

    def file_at(self, table: str, path: str) -> ArchiveFile | LeftOut | None:
        """Read one file's footer; None if the file does not exist."""
        entry = self.filesystem.get_file_info(path)
        day = PurePosixPath(path).parent.name.removeprefix("day=")
        return None if entry.type == fs.FileType.NotFound else self._read_footer(table, day, entry)

    def compacted(self, table: str, path: str) -> bool:
        """Whether the file is gone because compaction moved its rows to another file in the same folder."""
        if self.file_at(table, path) is not None:
            return False
        where = PurePosixPath(path)
        day = where.parent.name.removeprefix("day=")
        return any(where.name in file.replaces for file in self.scan(table, since=day, until=day).files)

    def _read_footer(self, table: str, day: str, entry: fs.FileInfo) -> ArchiveFile | LeftOut:
        try:
            with self.filesystem.open_input_file(entry.path) as source:
                footer = pq.read_metadata(source)
        except (pa.ArrowException, OSError) as error:
            return LeftOut(path=entry.path, reason=_line(error))
        metadata = footer.metadata or {}
        version = _version(metadata.get(VERSION_KEY, b""))
        if metadata.get(TABLE_KEY, b"").decode() != table or version is None:
            return LeftOut(path=entry.path, reason=f"not written as a file of {table} by stilltrue")
        if version > SCHEMA_VERSION:
            return LeftOut(
                path=entry.path, reason=f"schema version {version} is newer than {SCHEMA_VERSION}, the newest supported here"
            )
        return ArchiveFile(
            path=entry.path,
            table=table,
            day=day,
            bytes=entry.size,
            rows=footer.num_rows,
            groups=footer.num_row_groups,
            version=version,
            spans=spans_of(footer),
            archive=archive_of(footer),
            replaces=tuple(json.loads(metadata.get(REPLACES_KEY, b"[]"))),
            positions=_positions(metadata.get(POSITIONS_KEY)),
        )

    def read_parts(self, file: ArchiveFile, schema: pa.Schema, groups: Sequence[int]) -> pa.Table:
        """Read some row groups of a file as ``schema``, which may have fewer columns and fewer nested fields than the table.

        Other columns and fields are not read. Raises ArchiveError like :meth:`read`.
        """
        try:
            with self.filesystem.open_input_file(file.path) as source:
                parquet = pq.ParquetFile(source)
                rows = parquet.read_row_groups(list(groups), columns=paths_for(parquet, schema), use_threads=False)
                _check_rows(file, rows.num_rows, sum(parquet.metadata.row_group(group).num_rows for group in groups))
                return conformed(rows, schema)
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(_line(error), file.path) from None

    def read(
        self, file: ArchiveFile, *, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of one file, a row group at a time, with the columns of the current version.

        Raises
        ------
        ArchiveError
            If the file is damaged, or was removed since the scan.
        """
        schema = TABLES[file.table]
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        try:
            with self.filesystem.open_input_file(file.path) as source:
                parquet = pq.ParquetFile(source)
                present = [name for name in wanted.names if name in parquet.schema_arrow.names]
                for group in range(parquet.num_row_groups) if groups is None else groups:
                    rows = parquet.read_row_group(group, columns=present, use_threads=False)
                    _check_rows(file, rows.num_rows, parquet.metadata.row_group(group).num_rows)
                    yield conformed(rows, wanted)
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(_line(error), file.path) from None


def snapshots_of_name(name: str) -> tuple[int, int] | None:
    """Parse the first and last snapshot from a file's name; None if the name has another form."""
    first, dash, rest = name.partition("-")
    last = rest.partition("-")[0]
    return (int(first), int(last)) if dash and first.isdecimal() and last.isdecimal() else None


def day_of(seconds: float | None) -> str:
    """Return the UTC day of a folder, such as ``2026-11-20``; ``1970-01-01`` for an unknown time."""
    return datetime.fromtimestamp(seconds or 0.0, UTC).date().isoformat()


def check_day(text: str) -> str:
    """Return ``text`` as an ISO date. Raises ValueError if it is not a date."""
    return date.fromisoformat(text).isoformat()


def _footer(table: str, replaces: Sequence[str], positions: Positions | None) -> dict[bytes, bytes]:
    metadata = dict(stamped(table).metadata)
    if replaces:
        metadata[REPLACES_KEY] = json.dumps(list(replaces)).encode()
    if positions is not None:
        metadata[POSITIONS_KEY] = json.dumps([positions.after, positions.first]).encode()
    return metadata


def _positions(text: bytes | None) -> Positions | None:
    if text is None:
        return None
    after, first = json.loads(text)
    return Positions(after=after, first=first)


def _check_rows(file: ArchiveFile, found: int, expected: int) -> None:
    """Check the number of rows: pyarrow reads some truncated column chunks as if they were empty."""
    if found != expected:
        raise ArchiveError(f"{found} rows instead of {expected}", file.path)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _version(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
