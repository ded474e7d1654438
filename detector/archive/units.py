"""An archive between two days, and its units of reading: each snapshot is in one unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from detector.archive.deduplicate import KEYS, ambiguity_text, ambiguous, deduplicated
from detector.archive.files import ArchiveError, ArchiveFile, ArchiveFiles, LeftOut, Scan
from detector.archive.offsets import EVERYTHING, Wanted
from detector.archive.rows.schema import TABLES


class Piece(NamedTuple):
    """Some row groups of a file."""

    file: ArchiveFile
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The rows that a worker reads at once: all those of some snapshots of one archive.

    A unit has several ``pieces`` if they share snapshots, because a file was copied, or restored after compaction; duplicate
    rows count once. ``rows`` is an estimate.
    """

    table: str
    pieces: tuple[Piece, ...]
    rows: float

    @property
    def day(self) -> str:
        """The day to whose results it belongs, which is the day of its first file's folder."""
        return self.pieces[0].file.day

    @property
    def source(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Each file's path in the archive, its size, and the row groups."""
        return [(f"{self.table}/{file.day}/{file.name}", file.bytes, groups) for file, groups in self.pieces]

    def read(self, store: ArchiveFiles, schema: pa.Schema) -> tuple[pa.Table, list[ArchiveError]]:
        """Read the columns and nested fields of ``schema``; also return an error for each file that cannot be read."""
        found, failed = [schema.empty_table()], list[ArchiveError]()
        for piece in self.pieces:
            try:
                found.append(store.read_parts(piece.file, schema, piece.groups))
            except ArchiveError as error:
                failed.append(error)
        rows = pa.concat_tables(found)
        if len(self.pieces) < 2:
            return rows, failed
        rows, left_out = self._unmixed(rows)
        return deduplicated(rows, KEYS[self.table]), [*failed, *left_out]

    def _unmixed(self, rows: pa.Table) -> tuple[pa.Table, list[ArchiveError]]:
        """Remove snapshots whose number two detectors have used; also return an error that explains it."""
        if "begun" not in rows.column_names or not (both := ambiguous(rows)).any():
            return rows, []
        numbers = pc.unique(rows.column("snapshot").filter(pa.array(both))).to_pylist()
        return rows.filter(pa.array(~both)), [ArchiveError(ambiguity_text(numbers), self.pieces[-1].file.path)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive between two days after its footers have been read: the files to read, and those left out."""

    store: ArchiveFiles
    scans: dict[str, Scan]
    since: str = ""
    until: str = ""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The unreadable files of all tables."""
        return tuple(left for table in sorted(self.scans) for left in self.scans[table].left_out)

    def files(self, table: str) -> tuple[ArchiveFile, ...]:
        """Return the readable files of ``table``."""
        return self.scans[table].files

    def rows(self, table: str) -> int:
        """Return the number of rows in the readable files of ``table``."""
        return sum(file.rows for file in self.files(table))

    def units(self, table: str, wanted: Wanted = EVERYTHING) -> list[Unit]:
        """Return the units of ``table``, by archive and snapshot; row groups without ``wanted`` snapshots are skipped."""
        spans = [
            (file.archive, span, file)
            for file in self.files(table)
            for span in file.spans
            if wanted.has_day(file.day) and wanted.has_snapshots(span.low, span.high)
        ]
        units: list[Unit] = []
        reach: tuple[str, int] = ("", -1)
        for archive, span, file in sorted(spans, key=lambda each: (each[0], each[1].low, each[2].path)):
            piece = Piece(replace(file, spans=(), replaces=()), span.groups)
            rows = file.rows * len(span.groups) / max(file.groups, 1)
            if units and (archive, span.low) <= reach:
                units[-1] = replace(units[-1], pieces=(*units[-1].pieces, piece), rows=units[-1].rows + rows)
                reach = max(reach, (archive, span.high))
            else:
                units.append(Unit(table=table, pieces=(piece,), rows=rows))
                reach = (archive, span.high)
        return units


def open_archive(location: str, *, since: str = "", until: str = "") -> Archive:
    """Read every file's footer. Raises :class:`~detector.archive.files.ArchiveError` if there is no archive."""
    store = ArchiveFiles(location)
    store.check()
    scans = {table: store.scan(table, since=since, until=until) for table in TABLES}
    return Archive(store=store, scans=scans, since=since, until=until)


def by_day(units: Iterable[Unit]) -> dict[str, list[Unit]]:
    """Group units by day."""
    found: dict[str, list[Unit]] = {}
    for unit in units:
        found.setdefault(unit.day, []).append(unit)
    return found


def shares(units: Sequence[Unit], most: int) -> list[list[Unit]]:
    """Split units into at most ``most`` runs of neighbours with about the same number of rows."""
    share = sum(unit.rows for unit in units) / max(most, 1)
    parts: list[list[Unit]] = []
    done = 0.0
    for unit in units:
        if not parts or (done >= share * len(parts) and len(parts) < most):
            parts.append([])
        parts[-1].append(unit)
        done += unit.rows
    return parts
