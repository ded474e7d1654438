"""Merges the small files of a day, a row group at a time; readers see the old ones or the new one, never both.

The new file's footer names those that it replaces, so a reader passes over them from the moment it is there; then they
are deleted. A crash in between costs disk until the next time, nothing else. Only files that follow each other are put
together, in positions and in snapshots (:mod:`detector.archive.offsets`): every row keeps its position, and the file stays
sorted.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs

from detector.archive.files import GROUP_BYTES_MAX, ArchiveError, ArchiveFile, ArchiveFiles, LeftOut, check_day, day_of
from detector.archive.offsets import follow, in_order
from detector.archive.rows.schema import TABLES

SECONDS_PER_DAY = 86_400
SECONDS_MIN = SECONDS_PER_DAY
"""How long ago a day ended, usually, before its files are put together."""
LOCK = "_compacting"
ABANDONED_SECONDS = 6 * 3600
BYTES_TARGET = 256 * 2**20
"""Size at which a file is large enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """How many files became how many, and those that could not be read."""

    before: int
    after: int
    left_out: tuple[LeftOut, ...]


def last_day(now: float, seconds_min: float) -> str:
    """The newest day that had ended ``seconds_min`` before ``now``."""
    return day_of(now - seconds_min - SECONDS_PER_DAY)


def compact(store: ArchiveFiles, *, bytes_target: int = BYTES_TARGET, until: str = "") -> Compacted:
    """Put files together up to about ``bytes_target``, in the days up to ``until`` (empty: all).

    Memory: about two row groups. Raises OSError when the disk does not take it (what was not done yet stays as it was), and
    ArchiveError when another process is compacting this directory. Elsewhere (``s3://``) make sure that only one is.
    """
    until = until and check_day(until)
    with _alone(store):
        done = [_table(store, table, bytes_target, until) for table in sorted(TABLES)]
    return Compacted(
        before=sum(each.before for each in done),
        after=sum(each.after for each in done),
        left_out=tuple(left for each in done for left in each.left_out),
    )


def _table(store: ArchiveFiles, table: str, bytes_target: int, until: str) -> Compacted:
    before = after = 0
    _clear(store, table, until)
    scan = store.scan(table, until=until)
    left_out = list(scan.left_out)
    files = [piece.file for piece in in_order(scan.files)]
    for _, of_day in groupby(files, key=lambda file: file.day):
        for bundle in _bundles(of_day, bytes_target):
            made, torn = _merge(store, bundle)
            before, after = before + len(bundle) - len(torn), after + made
            left_out += torn
    return Compacted(before=before, after=after, left_out=tuple(left_out))


@contextmanager
def _alone(store: ArchiveFiles) -> Iterator[None]:
    """Two at once would each put the same rows into a new file."""
    if not isinstance(store.filesystem, fs.LocalFileSystem) or not os.path.isdir(store.root):  # noqa: PTH112
        yield
        return
    handle = os.open(f"{store.root}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArchiveError(f"{store.location}: another compaction is in progress") from None
    else:
        yield
    finally:
        os.close(handle)


def _clear(store: ArchiveFiles, table: str, until: str) -> None:
    """Delete what a compaction that was cut short has left: files that another replaces, and those in the making for hours."""
    scan = store.scan(table, until=until)
    store.remove(f"{PurePosixPath(file.path).parent}/{name}" for file in scan.files for name in file.replaces)
    old = time.time() - ABANDONED_SECONDS
    for day in store.days(table):
        if until and day > until:
            continue
        for entry in store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/{table}/day={day}")):
            if entry.base_name.startswith("_") and entry.base_name.endswith(".part") and entry.mtime.timestamp() < old:
                store.remove([entry.path])


def _bundles(files: Iterator[ArchiveFile], bytes_target: int) -> Iterator[list[ArchiveFile]]:
    """Runs of files that follow each other and fit together; a bundle of one is no work."""
    bundle: list[ArchiveFile] = []
    for file in files:
        fits = sum(each.bytes for each in bundle) + file.bytes <= bytes_target
        if bundle and not (fits and follow(bundle[-1], file)):
            if len(bundle) > 1:
                yield bundle
            bundle = []
        bundle.append(file)
    if len(bundle) > 1:
        yield bundle


class _TornError(Exception):
    """One file of a bundle proved unreadable on the way."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def _merge(store: ArchiveFiles, bundle: list[ArchiveFile]) -> tuple[int, list[LeftOut]]:
    """How many files came of it, and those that are left out: what lies before a torn one and what lies after it is merged."""
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
    except _TornError as error:
        torn = LeftOut(path=bundle[error.at].path, reason=str(error))
        before, left_before = _merge(store, bundle[: error.at])
        after, left_after = _merge(store, bundle[error.at + 1 :])
        return before + after, [*left_before, torn, *left_after]
    store.remove(file.path for file in bundle)
    return 1, []


def _groups(store: ArchiveFiles, bundle: Sequence[ArchiveFile]) -> Iterator[pa.Table]:
    """The rows of all files in turn, as row groups of about ``GROUP_BYTES_MAX``."""
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
            raise _TornError(at, error.reason) from None
        if rows != file.rows:
            raise _TornError(at, f"{rows} rows instead of {file.rows}")
    if gathered:
        yield pa.concat_tables(gathered)
