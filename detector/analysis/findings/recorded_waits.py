"""The waits and victims that the detector recorded for each incident while it lasted."""

from __future__ import annotations

import pyarrow as pa

from detector.archive.rows.schema import INCIDENTS
from detector.archive.units import Archive

LINES_MAX = 50
"""Most sentences kept per incident."""
_COLUMNS = pa.schema([INCIDENTS.field(name) for name in ("snapshot", "begun", "id", "seen", "waits", "archive")])


def recorded_waits(archive: Archive) -> dict[str, tuple[str, ...]]:
    """Return the sentences about each incident from its newest readable row, by id."""
    found: dict[str, tuple[str, ...]] = {}
    seen: dict[str, float] = {}
    for unit in archive.units("incidents"):
        rows, _ = unit.read(archive.store, _COLUMNS)
        for row in rows.to_pylist():
            if row["waits"] and (row["seen"] or 0.0) >= seen.get(row["id"], 0.0):
                seen[row["id"]] = row["seen"] or 0.0
                found[row["id"]] = tuple(row["waits"][:LINES_MAX])
    return found
