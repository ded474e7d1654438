"""Merges a day's small files, a row group at a time. Readers see either the old files or the new one, never both.

The new file's footer names the files that it replaces, so readers ignore these as soon as the new file exists; then they are
deleted. A crash in between only costs disk space until the next compaction. Only files that are consecutive in positions and in
snapshots (:mod:`detector.archive.offsets`) are merged, so rows keep their positions and the file stays sorted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

import pyarrow as pa

from detector.archive.directory_lock import directory_lock
from detector.archive.files import GROUP_BYTES_MAX, ArchiveError, ArchiveFile, ArchiveFiles, LeftOut, check_day, day_of
from detector.archive.offsets import consecutive, in_order
from detector.archive.rows.schema import TABLES

SECONDS_PER_DAY = 86_400
SECONDS_MIN = SECONDS_PER_DAY
"""Default time from the end of a day to its compaction."""
LOCK = "_compacting"
ABANDONED_SECONDS = 6 * 3600
BYTES_TARGET = 256 * 2**20
"""Default size up to which files are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The number of files before and after, and the files that could not be read."""

    before: int
    after: int
    left_out: tuple[LeftOut, ...]


def last_day(now: float, seconds_min: float) -> str:
    """Return the newest day that ended at least ``seconds_min`` before ``now``."""
    return day_of(now - seconds_min - SECONDS_PER_DAY)


def compact(store: ArchiveFiles, *, bytes_target: int = BYTES_TARGET, until: str = "") -> Compacted:
    """Merge files up to about ``bytes_target``, in the days up to ``until`` (empty: all).

    Needs memory for about two row groups. Raises OSError if a write fails (the remaining files stay as they are), and
    ArchiveError if another process is compacting this directory. Object stores (``s3://``) have no lock: run only one there.
    """
    until = until and check_day(until)
    with directory_lock(store, LOCK, "another compaction"):
        done = [_table(store, table, bytes_target, until) for table in sorted(TABLES)]
    return Compacted(
        before=sum(each.before for each in done),
        after=sum(each.after for each in done),
        left_out=tuple(left for each in done for left in each.left_out),
    )


def _table(store: ArchiveFiles, table: str, bytes_target: int, until: str) -> Compacted:
    before = after = 0
    _clean_up(store, table, until)
    scan = store.scan(table, until=until)
    left_out = list(scan.left_out)
    files = [piece.file for piece in in_order(scan.files)]
    for _, of_day in groupby(files, key=lambda file: file.day):
        for bundle in _bundles(of_day, bytes_target):
            merged, damaged = _merge(store, bundle)
            before, after = before + len(bundle) - len(damaged), after + merged
            left_out += damaged
    return Compacted(before=before, after=after, left_out=tuple(left_out))


def _clean_up(store: ArchiveFiles, table: str, until: str) -> None:
    """Clean up after an interrupted compaction: delete replaced files, and unfinished files that are hours old."""
    scan = store.scan(table, until=until)
    store.remove(f"{PurePosixPath(file.path).parent}/{name}" for file in scan.files for name in file.replaces)
    old = time.time() - ABANDONED_SECONDS
    for day in store.days(table):
        if until and day > until:
            continue
        for entry in store.listed(f"{table}/day={day}"):
            if entry.base_name.startswith("_") and entry.base_name.endswith(".part") and entry.mtime.timestamp() < old:
                store.remove([entry.path])


def _bundles(files: Iterator[ArchiveFile], bytes_target: int) -> Iterator[list[ArchiveFile]]:
    """Yield runs of consecutive files that fit into one; a run of one file needs no work."""
    bundle: list[ArchiveFile] = []
    for file in files:
        fits = sum(each.bytes for each in bundle) + file.bytes <= bytes_target
        if bundle and not (fits and consecutive(bundle[-1], file)):
            if len(bundle) > 1:
                yield bundle
            bundle = []
        bundle.append(file)
    if len(bundle) > 1:
        yield bundle


class _DamagedError(Exception):
    """A file of a bundle turned out to be unreadable."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def _merge(store: ArchiveFiles, bundle: list[ArchiveFile]) -> tuple[int, list[LeftOut]]:
    """Merge a bundle; return the number of files it became and the damaged ones. The files on each side of these are merged."""
    if len(bundle) < 2:
        return len(bundle), []
    first, last = bundle[0], bundle[-1]
    assert first.snapshots is not None
    assert last.snapshots is not None
    try:
        store.write_groups(
            first.table,
            first.day,
            _groups(store, bundle),
            first=first.snapshots[0],
            last=last.snapshots[1],
            replaces=[name for file in bundle for name in (file.name, *file.replaces)],
            positions=first.positions,
        )
    except _DamagedError as error:
        damaged = LeftOut(path=bundle[error.at].path, reason=str(error))
        before, left_before = _merge(store, bundle[: error.at])
        after, left_after = _merge(store, bundle[error.at + 1 :])
        return before + after, [*left_before, damaged, *left_after]
    store.remove(file.path for file in bundle)
    return 1, []


def _groups(store: ArchiveFiles, bundle: Sequence[ArchiveFile]) -> Iterator[pa.Table]:
    """Yield the rows of all files in turn, as row groups of about ``GROUP_BYTES_MAX``."""
    gathered: list[pa.Table] = []
    bytes_gathered = 0
    for at, file in enumerate(bundle):
        rows = 0
        try:
            for data in store.read(file):
                rows += data.num_rows
                if gathered and bytes_gathered + data.nbytes > GROUP_BYTES_MAX:
                    yield pa.concat_tables(gathered)
                    gathered, bytes_gathered = [], 0
                gathered.append(data)
                bytes_gathered += data.nbytes
        except ArchiveError as error:
            raise _DamagedError(at, error.reason) from None
        if rows != file.rows:
            raise _DamagedError(at, f"{rows} rows instead of {file.rows}")
    if gathered:
        yield pa.concat_tables(gathered)
