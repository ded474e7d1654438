"""Puts the small files of a day together, snapshot by snapshot in order; readers see the old ones or the new one, never both.

The new file's footer names those that it replaces, so a reader passes over them from the moment it is there; then they
are deleted. A crash in between costs disk, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import PurePosixPath

import pyarrow as pa

from detector.archive.schema import TABLES
from detector.archive.store import ArchiveError, ArchiveFile, LeftOut, Store
from detector.archive.writer import KEYS


def compact(store: Store, *, bytes_target: int = 256 * 2**20, until: str = "") -> list[LeftOut]:
    """Put files together up to about ``bytes_target``, in the days up to ``until``; the files that could not be read."""
    left_out: list[LeftOut] = []
    for table in sorted(TABLES):
        scan = store.scan(table, until=until)
        left_out += scan.left_out
        for _, files in groupby(scan.files, key=attrgetter("day")):
            for bundle in _bundles(list(files), bytes_target):
                left_out += _merge(store, bundle)
    return left_out


def _bundles(files: list[ArchiveFile], bytes_target: int) -> Iterator[list[ArchiveFile]]:
    """Runs of neighbours that fit together; a bundle of one is no work."""
    bundle: list[ArchiveFile] = []
    for file in files:
        if bundle and sum(each.bytes for each in bundle) + file.bytes > bytes_target:
            if len(bundle) > 1:
                yield bundle
            bundle = []
        bundle.append(file)
    if len(bundle) > 1:
        yield bundle


def _merge(store: Store, bundle: list[ArchiveFile]) -> list[LeftOut]:
    left_out, tables, merged = [], [], []
    for file in bundle:
        try:
            tables.append(pa.concat_tables(store.read(file)) if file.rows else pa.table([]))
            merged.append(file)
        except ArchiveError as error:
            left_out.append(LeftOut(path=file.path, reason=str(error)))
    if len(merged) > 1:
        table = merged[0].table
        together = pa.concat_tables([each for each in tables if each.num_rows])
        ordered = together.sort_by([("snapshot", "ascending"), (KEYS[table], "ascending")])
        gone = [name for file in merged for name in (PurePosixPath(file.path).name, *file.replaces)]
        store.write(table, merged[0].day, ordered, replaces=gone)
        store.remove(file.path for file in merged)
    return left_out
