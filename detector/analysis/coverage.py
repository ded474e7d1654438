"""What the snapshots' own rows tell without their waits: when each was, what was covered, who was silent."""

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

from detector.analysis.counters import Ends
from detector.archive.files import READERS, ArchiveError, ArchiveFile, LeftOut, Store
from detector.archive.list_columns import flattened, whole
from detector.archive.local_state_rows import Row

COLUMNS = ("snapshot", "begun", "ended", "outcome", "members", "missing")
HOUR_SECONDS = 3600
FILES_AT_ONCE = 256
"""Read before they are counted: what bounds the memory."""


@dataclass(slots=True, kw_only=True)
class Headers:
    """Counted file by file; 24 bytes a snapshot are all that grows with the archive."""

    parts: list[Ends] = field(default_factory=list)
    hours: dict[float, Counter[str]] = field(default_factory=dict)
    silent: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def ends(self) -> Ends:
        """When each snapshot began and ended."""
        parts = self.parts or [Ends(np.empty(0, np.int64), np.empty(0), np.empty(0))]
        snapshot, begun, ended = (np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS[:3])
        order = np.argsort(snapshot, kind="stable")
        return Ends(snapshot[order], begun[order], ended[order])

    def coverage(self) -> list[Row]:
        """By hour: snapshots by outcome, members expected and missing. Silence is never read as health."""
        names = ("snapshots", "complete", "incomplete", "rejected", "members", "missing")
        return [{"hour": hour} | {name: self.hours[hour][name] for name in names} for hour in sorted(self.hours)]

    def missing(self) -> list[Row]:
        """By process: in how many snapshots it was expected and did not report, first and last."""
        rows: list[Row] = [
            {"process": process, "service": service, "snapshots": int(count), "first": first, "last": last}
            for (process, service), (count, first, last) in self.silent.items()
        ]
        return sorted(rows, key=lambda row: (-row["snapshots"], row["process"], row["service"]))

    def count(self, rows: pa.Table) -> None:
        """Take some rows of ``snapshots`` (with ``COLUMNS``)."""
        begun, ended = (_times(rows.column(name)) for name in ("begun", "ended"))
        self.parts.append(Ends(rows.column("snapshot").to_numpy(), begun, ended))
        gone, of = flattened(rows.column("missing"))
        silent = np.bincount(of, minlength=rows.num_rows)
        members = pc.fill_null(rows.column("members"), 0).to_numpy()
        outcomes = rows.column("outcome").to_pylist()
        self.outcomes.update(map(str, outcomes))
        hours = np.floor(begun / HOUR_SECONDS) * HOUR_SECONDS
        for hour, outcome, expected, absent in zip(hours.tolist(), outcomes, members.tolist(), silent.tolist(), strict=True):
            if not isnan(hour):  # of an unknown time: in no hour
                counts = {"snapshots": 1, str(outcome): 1, "members": expected, "missing": absent}
                self.hours.setdefault(hour, Counter()).update(counts)
        names = zip(gone.field("instance").to_pylist(), gone.field("service").to_pylist(), begun[of].tolist(), strict=True)
        for process, service, at in names:
            count, first, last = self.silent.get((process, service), (0, at, at))
            self.silent[process, service] = [count + 1, min(first, at), max(last, at)]


def read_headers(store: Store, files: Sequence[ArchiveFile]) -> Headers:
    """The headers in ``files`` of ``snapshots``; a file that proves unreadable is named."""
    headers = Headers()
    with ThreadPoolExecutor(READERS) as pool:
        for low in range(0, len(files), FILES_AT_ONCE):
            some = files[low : low + FILES_AT_ONCE]
            for found in pool.map(lambda file: _read(store, file), some):
                if isinstance(found, LeftOut):
                    headers.left_out.append(found)
                else:
                    for rows in found:
                        headers.count(rows)
    return headers


def _read(store: Store, file: ArchiveFile) -> list[pa.Table] | LeftOut:
    try:
        return list(store.read(file, columns=COLUMNS))
    except ArchiveError as error:
        return LeftOut(path=file.path, reason=error.reason)


def _times(column: Iterable[Any]) -> Any:
    return pc.cast(whole(column), pa.float64()).to_numpy(zero_copy_only=False)
