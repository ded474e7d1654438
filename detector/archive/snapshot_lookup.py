"""Finds a snapshot and its verdicts in an archive by number: newest day first, only in files that may hold it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.compute as pc

from detector.archive.files import ArchiveError, ArchiveFile, ArchiveFiles, snapshots_of_name
from detector.archive.rows.row_decoder import snapshot_of, verdict_of
from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSnapshot:
    """A snapshot from the archive; ``outcome`` and ``begun_by`` as in a list of snapshots."""

    snapshot: Snapshot
    outcome: str
    begun_by: str
    verdicts: tuple[Verdict, ...]


def find_snapshot(store: ArchiveFiles, number: int) -> ArchivedSnapshot | None:
    """Return the snapshot with this number, or None if the archive does not have it (any more)."""
    row = next(_rows(store, "snapshots", number), None)
    if row is None:
        return None
    verdicts = {(row["predicate"], row["scope"]): verdict_of(row) for row in _rows(store, "verdicts", number)}
    return ArchivedSnapshot(
        snapshot=snapshot_of(row), outcome=row["outcome"], begun_by=row["begun_by"], verdicts=tuple(verdicts.values())
    )


def _rows(store: ArchiveFiles, table: str, number: int) -> Iterator[dict[str, Any]]:
    """Yield the snapshot's rows of ``table``."""
    for day in reversed(store.days(table)):
        for file in _files(store, table, day, number):
            try:
                for rows in store.read(file):
                    yield from rows.filter(pc.equal(rows.column("snapshot"), number)).to_pylist()
            except ArchiveError:
                continue  # replaced by compaction, or damaged: another file may have the rows


def _files(store: ArchiveFiles, table: str, day: str, number: int) -> Iterator[ArchiveFile]:
    for entry in store.entries(table, day):
        span = snapshots_of_name(PurePosixPath(entry.path).name)
        if span is None or span[0] <= number <= span[1]:
            file = store.file_at(table, entry.path)
            if isinstance(file, ArchiveFile):
                yield file
