"""An archive between two days, and its units of reading: whole snapshots, each in one unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from detector.archive.deduplicate import KEYS, mixed, mixed_text, once
from detector.archive.files import ArchiveError, ArchiveFile, ArchiveFiles, LeftOut, Scan
from detector.archive.offsets import EVERYTHING, Wanted
from detector.archive.rows.schema import TABLES


class Piece(NamedTuple):
    """Some row groups of a file."""

    file: ArchiveFile
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a worker reads at once: whole snapshots of one archive that no other unit has.

    Several ``pieces`` have some of the snapshots in common: a file was copied, or brought back after compaction. What they say
    twice counts once. ``rows``: about how many there are.
    """

    table: str
    pieces: tuple[Piece, ...]
    rows: float

    @property
    def day(self) -> str:
        """The day whose results it belongs to: that of its first file's folder."""
        return self.pieces[0].file.day

    @property
    def source(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """What it is read from: each file's place in the archive and size, and the row groups."""
        return [(f"{self.table}/{file.day}/{file.name}", file.bytes, groups) for file, groups in self.pieces]

    def read(self, store: ArchiveFiles, schema: pa.Schema) -> tuple[pa.Table, list[ArchiveError]]:
        """The rows, as ``schema``: columns of the table with some of their fields; and why any file could not be read."""
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
        return once(rows, KEYS[self.table]), [*failed, *left_out]

    def _unmixed(self, rows: pa.Table) -> tuple[pa.Table, list[ArchiveError]]:
        """Without snapshots whose number two detectors have given, and why these are left out."""
        if "begun" not in rows.column_names or not (both := mixed(rows)).any():
            return rows, []
        numbers = pc.unique(rows.column("snapshot").filter(pa.array(both))).to_pylist()
        return rows.filter(pa.array(~both)), [ArchiveError(mixed_text(numbers), self.pieces[-1].file.path)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive between two days, its footers looked at: what to read, and what was left out."""

    store: ArchiveFiles
    scans: dict[str, Scan]
    since: str = ""
    until: str = ""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files that cannot be read, of all tables."""
        return tuple(left for table in sorted(self.scans) for left in self.scans[table].left_out)

    def files(self, table: str) -> tuple[ArchiveFile, ...]:
        """The good files of ``table``."""
        return self.scans[table].files

    def rows(self, table: str) -> int:
        """Rows in the good files of ``table``."""
        return sum(file.rows for file in self.files(table))

    def units(self, table: str, wanted: Wanted = EVERYTHING) -> list[Unit]:
        """What there is to read of ``table``, by archive and snapshot; row groups with none ``wanted`` are passed over."""
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
    """Look at every file's footer. Raises :class:`~detector.archive.files.ArchiveError` when there is no archive."""
    store = ArchiveFiles(location)
    store.check()
    scans = {table: store.scan(table, since=since, until=until) for table in TABLES}
    return Archive(store=store, scans=scans, since=since, until=until)


def by_day(units: Iterable[Unit]) -> dict[str, list[Unit]]:
    """Units by the day whose results they belong to."""
    found: dict[str, list[Unit]] = {}
    for unit in units:
        found.setdefault(unit.day, []).append(unit)
    return found


def shares(units: Sequence[Unit], most: int) -> list[list[Unit]]:
    """At most ``most`` runs of neighbours with about as many rows each."""
    share = sum(unit.rows for unit in units) / max(most, 1)
    parts: list[list[Unit]] = []
    done = 0.0
    for unit in units:
        if not parts or (done >= share * len(parts) and len(parts) < most):
            parts.append([])
        parts[-1].append(unit)
        done += unit.rows
    return parts
