"""Times, coverage and silent members, from the rows of ``snapshots`` without their waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import SnapshotTimes
from detector.archive.deduplicate import by_archive
from detector.archive.files import READERS, LeftOut
from detector.archive.rows.list_columns import combined, flattened
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.schema import SNAPSHOTS
from detector.archive.units import Archive, Unit

HEADERS = pa.schema(
    [SNAPSHOTS.field(name) for name in ("archive", "snapshot", "begun", "ended", "outcome", "members", "missing")]
)
HOUR_SECONDS = 3600


@dataclass(slots=True, kw_only=True)
class Headers:
    """Counts over snapshot headers, taken file by file; only 24 bytes per snapshot grow with the archive."""

    parts: dict[str, list[SnapshotTimes]] = field(default_factory=dict)
    hours: dict[float, Counter[str]] = field(default_factory=dict)
    silent: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    reported: int = 0
    """Number of reports that the detector evaluated."""

    def ends(self) -> dict[str, SnapshotTimes]:
        """Return when each snapshot began and ended, by archive."""
        return {archive: _joined(parts) for archive, parts in self.parts.items()}

    def coverage(self) -> list[Row]:
        """Return a row per hour: snapshots by outcome, members expected and missing."""
        names = ("snapshots", "complete", "incomplete", "rejected", "members", "missing")
        return [{"hour": hour} | {name: self.hours[hour][name] for name in names} for hour in sorted(self.hours)]

    def missing(self) -> list[Row]:
        """Return a row per process that did not report: the number of such snapshots, the first and the last."""
        rows: list[Row] = [
            {"process": process, "service": service, "snapshots": int(count), "first": first, "last": last}
            for (process, service), (count, first, last) in self.silent.items()
        ]
        return sorted(rows, key=lambda row: (-row["snapshots"], row["process"], row["service"]))

    def count(self, rows: pa.Table) -> None:
        """Count rows of ``snapshots`` (with the columns of ``HEADERS``)."""
        for archive, own in by_archive(rows):
            times = (_times(own.column(name)) for name in ("begun", "ended"))
            self.parts.setdefault(archive, []).append(SnapshotTimes(own.column("snapshot").to_numpy(), *times))
        begun = _times(rows.column("begun"))
        missing, of = flattened(rows.column("missing"))
        silent = np.bincount(of, minlength=rows.num_rows)
        members = pc.fill_null(rows.column("members"), 0).to_numpy()
        self.reported += int(np.maximum(members - silent, 0).sum())
        outcomes = rows.column("outcome").to_pylist()
        self.outcomes.update(map(str, outcomes))
        hours = np.floor(begun / HOUR_SECONDS) * HOUR_SECONDS
        for hour, outcome, expected, absent in zip(hours.tolist(), outcomes, members.tolist(), silent.tolist(), strict=True):
            if not isnan(hour):  # the time may be unknown
                counts = {"snapshots": 1, str(outcome): 1, "members": expected, "missing": absent}
                self.hours.setdefault(hour, Counter()).update(counts)
        names = zip(
            missing.field("instance").to_pylist(), missing.field("service").to_pylist(), begun[of].tolist(), strict=True
        )
        for process, service, at in names:
            count, first, last = self.silent.get((process, service), (0, at, at))
            self.silent[process, service] = [count + 1, min(first, at), max(last, at)]


def read_units(archive: Archive, units: Sequence[Unit]) -> tuple[pa.Table, list[LeftOut]]:
    """Read the ``HEADERS`` of units; also return the files that turned out to be unreadable."""
    found, failed = [HEADERS.empty_table()], list[LeftOut]()
    with ThreadPoolExecutor(READERS) as pool:
        for rows, errors in pool.map(lambda unit: unit.read(archive.store, HEADERS), units):
            found.append(rows)
            failed += (LeftOut(path=error.path, reason=error.reason) for error in errors)
    return pa.concat_tables(found), failed


def _joined(parts: Sequence[SnapshotTimes]) -> SnapshotTimes:
    snapshot, begun, ended = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("snapshot", "begun", "ended")
    )
    order = np.argsort(snapshot, kind="stable")
    return SnapshotTimes(snapshot[order], begun[order], ended[order])


def _times(column: Iterable[Any]) -> Any:
    return pc.cast(combined(column), pa.float64()).to_numpy(zero_copy_only=False)
