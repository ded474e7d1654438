"""Positions: a number for every row of an archive, in the order of writing, stable across restarts, removal and compaction.

Rules:

1. The rows of a table are numbered as they are written, one by one: their positions. A file's footer says the position of its
   first row, and up to where all was written before it (``after``).
2. A writer that starts goes on at the clock's microseconds, or where the newest file ends if that is later. Rows come more
   slowly than that, so no position is ever given twice, also when the newest files are lost.
3. Files without positions (of earlier versions, generated ones) stand before all others, by their paths; the last row of the
   last one is at -1.
4. Compaction puts together only files of one archive that follow each other in positions and in snapshots: no row's position
   changes.
5. What no file covers, between two or before the first, is lost: removed for want of space, or torn.
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
    """One file in the order of writing: its rows are ``first`` to ``end``; from ``after`` to ``first`` there is nothing."""

    file: ArchiveFile
    after: int
    first: int

    @property
    def end(self) -> int:
        """The position after its last row."""
        return self.first + self.file.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Snapshots and days that a reader wants, both ends included; None and the empty text: no bound."""

    snapshot_min: int | None = None
    snapshot_max: int | None = None
    day_min: str = ""
    day_max: str = ""

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return self == EVERYTHING

    def has_day(self, day: str) -> bool:
        """Whether rows of this day may be wanted."""
        return (not self.day_min or day >= self.day_min) and (not self.day_max or day <= self.day_max)

    def has_snapshots(self, low: int, high: int) -> bool:
        """Whether a snapshot between ``low`` and ``high`` may be wanted."""
        return (self.snapshot_min is None or high >= self.snapshot_min) and (
            self.snapshot_max is None or low <= self.snapshot_max
        )

    def rows(self, rows: pa.Table) -> pa.Table:
        """Those of the snapshots wanted."""
        for bound, keep in ((self.snapshot_min, pc.greater_equal), (self.snapshot_max, pc.less_equal)):
            if bound is not None:
                rows = rows.filter(keep(rows.column("snapshot"), bound))
        return rows


EVERYTHING = Wanted()


def ranges(pieces: Iterable[Piece], wanted: Wanted) -> Iterator[tuple[int, int]]:
    """The ranges of positions, in order, in which wanted rows may be; each is of one file."""
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
    """The files of one table in the order of their rows (rules 1 and 3)."""
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


def follow(earlier: ArchiveFile, later: ArchiveFile) -> bool:
    """Whether ``later`` goes on where ``earlier`` ends, in positions and in snapshots (rule 4)."""
    if earlier.archive != later.archive:
        return False
    if earlier.snapshots is None or later.snapshots is None or earlier.snapshots[1] > later.snapshots[0]:
        return False
    if earlier.positions is None or later.positions is None:
        return earlier.positions is later.positions
    return earlier.positions.first + earlier.rows == later.positions.after == later.positions.first


def starting(store: ArchiveFiles, table: str, now: float) -> Positions:
    """Where a writer that starts at ``now`` (seconds) goes on (rule 2). Of the past only the newest days are looked at."""
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
    """The files of one table in order, looked at anew when told; each footer is read once. Safe for several threads."""

    def __init__(self, store: ArchiveFiles, table: str) -> None:
        self.store = store
        self.table = table
        self.pieces: tuple[Piece, ...] = ()
        self.left_out: tuple[str, ...] = ()
        self._known: dict[str, ArchiveFile] = {}
        self._one = threading.Lock()

    def refresh(self) -> None:
        """Look at the folders again. Raises OSError when they cannot be read."""
        with self._one:
            scan: Scan = self.store.scan(self.table, known=self._known)
            self._known = {file.path: file for file in scan.files}
            self.left_out = tuple(left.path for left in scan.left_out)
            self.pieces = in_order(scan.files)

    @property
    def begin(self) -> int:
        """The position of the first row there is; 0 when there is none."""
        return self.pieces[0].first if self.pieces else 0

    @property
    def end(self) -> int:
        """The position after the last row; 0 when there is none."""
        return self.pieces[-1].end if self.pieces else 0

    def at(self, position: int) -> Piece | None:
        """The first piece that has rows from ``position`` on."""
        found = bisect_right(self.pieces, position, key=lambda piece: piece.end)
        return self.pieces[found] if found < len(self.pieces) else None

    def lost(self, since: int, until: int) -> tuple[int, int] | None:
        """The first range between the two that no file covers (rule 5); None when all is there."""
        covered = since
        for piece in self.pieces[bisect_right(self.pieces, since, key=lambda piece: piece.end) :]:
            if covered >= until:
                return None
            if piece.after > covered:
                return covered, min(piece.after, until)
            covered = max(covered, piece.end)
        return (covered, until) if covered < until else None
