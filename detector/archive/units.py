"""An archive between two days, and the units that it is read by: row groups that hold whole snapshots together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from detector.archive.files import ArchiveFile, LeftOut, Scan, Store
from detector.archive.schema import TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a worker reads at once: row groups of a file that hold whole snapshots, and how many rows they have."""

    file: ArchiveFile
    groups: tuple[int, ...]
    rows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive between two days, its footers looked at: what to read, and what was left out."""

    store: Store
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

    def units(self, table: str) -> list[Unit]:
        """What there is to read of ``table``, in the order of its files."""
        return [
            Unit(file=replace(file, spans=(), replaces=()), groups=span, rows=file.rows * len(span) / max(file.groups, 1))
            for file in self.files(table)
            for span in file.spans
        ]


def open_archive(location: str, *, since: str = "", until: str = "") -> Archive:
    """Look at every file's footer. Raises :class:`~detector.archive.files.ArchiveError` when there is no archive."""
    store = Store(location)
    store.check()
    scans = {table: store.scan(table, since=since, until=until) for table in TABLES}
    return Archive(store=store, scans=scans, since=since, until=until)


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
