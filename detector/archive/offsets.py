"""Positions: the numbers of an archive's rows in the order of writing, stable across restarts, removal and compaction.

Rules:

1. Each row of a table gets the next number, its position, as it is written. A file's footer has the position of its first row,
   and ``after``, the end of the previous file.
2. A writer that starts continues at the clock's microseconds, or at the end of the newest file if that is greater. Rows come
   more slowly than microseconds, so positions are never reused, even if the newest files are lost.
3. Files without positions (from earlier versions, or generated) come first, by path; their last row is at -1.
4. Compaction merges only files of one archive that are consecutive in positions and in snapshots, so positions never change.
5. Positions that no file covers, before the first file or between two, are lost: their rows were removed to free space, or
   their file is damaged.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from detector.archive.files import ArchiveFile, ArchiveFiles, Positions, Scan

MICROSECONDS = 1_000_000
_DAYS_LOOKED_AT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file with its positions: rows from ``first`` to ``end``, and nothing from ``after`` to ``first``."""

    file: ArchiveFile
    after: int
    first: int

    @property
    def end(self) -> int:
        """The position after the file's last row."""
        return self.first + self.file.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A range of snapshots and of days to read, inclusive; None or an empty text means no bound."""

    snapshot_min: int | None = None
    snapshot_max: int | None = None
    day_min: str = ""
    day_max: str = ""

    @property
    def all(self) -> bool:
        """Whether there is no bound."""
        return self == EVERYTHING

    def has_day(self, day: str) -> bool:
        """Whether the day is in the range."""
        return (not self.day_min or day >= self.day_min) and (not self.day_max or day <= self.day_max)

    def has_snapshots(self, low: int, high: int) -> bool:
        """Whether any snapshot from ``low`` to ``high`` is in the range."""
        return (self.snapshot_min is None or high >= self.snapshot_min) and (
            self.snapshot_max is None or low <= self.snapshot_max
        )

    def rows(self, rows: pa.Table) -> pa.Table:
        """Filter ``rows`` by snapshot."""
        for bound, keep in ((self.snapshot_min, pc.greater_equal), (self.snapshot_max, pc.less_equal)):
            if bound is not None:
                rows = rows.filter(keep(rows.column("snapshot"), bound))
        return rows


EVERYTHING = Wanted()


def ranges(pieces: Iterable[Piece], wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Yield the ranges of positions, in order, that may have wanted rows; each is within one file."""
    for piece in pieces:
        if wanted.all or not piece.file.spans:
            yield piece.first, piece.end
        elif wanted.has_day(piece.file.day):
            at = piece.first
            for span in piece.file.spans:
                if wanted.has_snapshots(span.low, span.high):
                    yield at, at + span.rows
                at += span.rows


def in_order(files: Iterable[ArchiveFile]) -> tuple[Piece, ...]:
    """Sort the files of one table by position (rules 1 and 3)."""
    numbered, unnumbered = [], []
    for file in files:
        if file.positions is None:
            unnumbered.append(file)
        else:
            numbered.append(Piece(file=file, after=file.positions.after, first=file.positions.first))
    old, at = [], -sum(file.rows for file in unnumbered)
    for file in sorted(unnumbered, key=lambda file: file.path):
        old.append(Piece(file=file, after=at, first=at))
        at += file.rows
    return (*old, *sorted(numbered, key=lambda piece: piece.first))


def consecutive(earlier: ArchiveFile, later: ArchiveFile) -> bool:
    """Whether ``later`` directly follows ``earlier`` in positions, and in snapshots (rule 4)."""
    if earlier.archive != later.archive:
        return False
    if earlier.snapshots is None or later.snapshots is None or earlier.snapshots[1] > later.snapshots[0]:
        return False
    if earlier.positions is None or later.positions is None:
        return earlier.positions is later.positions
    return earlier.positions.first + earlier.rows == later.positions.after == later.positions.first


def next_positions(store: ArchiveFiles, table: str, now: float) -> Positions:
    """Return where a writer that starts at ``now`` (seconds) continues (rule 2). Reads only the newest days."""
    days = store.days(table)
    ends: list[int] = []
    unsure = bool(days)
    looked = 0
    for day in reversed(days):
        scan = store.scan(table, since=day, until=day)
        found = [file.positions.first + file.rows for file in scan.files if file.positions is not None]
        ends += found
        unsure = unsure and not scan.files
        if scan.left_out:
            unsure = True
            break
        looked += bool(scan.files)
        if looked == _DAYS_LOOKED_AT:
            break
    first = max(int(now * MICROSECONDS), *ends, 0)
    return Positions(after=first if unsure else max(ends, default=0), first=first)


class Index:
    """The files of one table by position, listed again on request; each footer is read once. Thread-safe."""

    def __init__(self, store: ArchiveFiles, table: str) -> None:
        self.store = store
        self.table = table
        self.pieces: tuple[Piece, ...] = ()
        self.left_out: tuple[str, ...] = ()
        self._known: dict[str, ArchiveFile] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """List the folders again. Raises OSError if they cannot be read."""
        with self._lock:
            scan: Scan = self.store.scan(self.table, known=self._known)
            self._known = {file.path: file for file in scan.files}
            self.left_out = tuple(left.path for left in scan.left_out)
            self.pieces = in_order(scan.files)

    @property
    def begin(self) -> int:
        """The position of the first row; 0 if there is none."""
        return self.pieces[0].first if self.pieces else 0

    @property
    def end(self) -> int:
        """The position after the last row; 0 if there is none."""
        return self.pieces[-1].end if self.pieces else 0

    def at(self, position: int) -> Piece | None:
        """Return the first file with rows at or after ``position``."""
        found = bisect_right(self.pieces, position, key=lambda piece: piece.end)
        return self.pieces[found] if found < len(self.pieces) else None

    def lost(self, since: int, until: int) -> tuple[int, int] | None:
        """Return the first range from ``since`` to ``until`` that no file covers (rule 5), or None."""
        covered = since
        for piece in self.pieces[bisect_right(self.pieces, since, key=lambda piece: piece.end) :]:
            if covered >= until:
                return None
            if piece.after > covered:
                return covered, min(piece.after, until)
            covered = max(covered, piece.end)
        return (covered, until) if covered < until else None
