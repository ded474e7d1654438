"""The result tables made from the counters of an archive, in reading order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import MICROSECONDS, TALLY, merged
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.schema import REAL, TEXT, WHOLE

SCHEMAS = {
    "coverage": pa.schema(
        [("hour", REAL), *((name, WHOLE) for name in ("snapshots", "complete", "incomplete", "rejected", "members", "missing"))]
    ),
    "missing": pa.schema([("process", TEXT), ("service", TEXT), ("snapshots", WHOLE), ("first", REAL), ("last", REAL)]),
    "clocks": pa.schema(
        [("process", TEXT), ("ahead_seconds", REAL), ("behind_seconds", REAL), ("delay_mean_seconds", REAL)],
    ),
    "orphans": pa.schema(
        [
            ("archive", TEXT),
            ("snapshot", WHOLE),
            ("server", TEXT),
            ("process", TEXT),
            ("incarnation", WHOLE),
            ("highest", WHOLE),
            ("next_number", WHOLE),
        ]
    ),
    "blocked": pa.schema(
        [
            ("service", TEXT),
            ("method", TEXT),
            ("samples", WHOLE),
            ("blocked_seconds", REAL),
            ("longest_wait_seconds", REAL),
        ]
    ),
    "pools": pa.schema(
        [
            ("service", TEXT),
            ("pool", TEXT),
            ("size", WHOLE),
            ("samples", WHOLE),
            ("busy_mean", REAL),
            ("busy_max", WHOLE),
            ("queued_mean", REAL),
            ("queued_max", WHOLE),
            ("full_share", REAL),
        ]
    ),
    "locks": pa.schema([("resource", TEXT), ("samples", WHOLE), ("waited_seconds", REAL)]),
    "holding": pa.schema([("service", TEXT), ("callee", TEXT), ("samples", WHOLE)]),
}
"""The columns of the result tables; docs/archive.md says what they mean."""


def totals(tally: pa.Table, period_seconds: float) -> dict[str, list[Row]]:
    """By name, the rows of the result tables of a tally, also of one by day: all of ``SCHEMAS`` but coverage and missing."""
    tally = merged([tally.select(TALLY.names)])
    kinds = {kind: tally.filter(pc.equal(tally.column("kind"), kind)).to_pylist() for kind in KINDS}
    return {
        "clocks": _clocks(kinds["clock"]),
        "orphans": _orphans(kinds["orphan"]),
        "blocked": _blocked(kinds["blocked"], period_seconds),
        "pools": _pools(kinds["pool"]),
        "locks": _locks(kinds["lock"], period_seconds),
        "holding": _holding(kinds["holding"], kinds["process"]),
    }


KINDS = ("clock", "orphan", "blocked", "pool", "lock", "holding", "process")


def _clocks(rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = [
        {
            "process": row["one"],
            "ahead_seconds": row["ahead_max"],
            "behind_seconds": row["behind_max"],
            "delay_mean_seconds": row["delay_sum"] / row["samples"] / MICROSECONDS,
        }
        for row in rows
    ]
    return sorted(found, key=lambda row: (-max(row["ahead_seconds"], row["behind_seconds"]), row["process"]))


def _orphans(rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = [
        {
            "archive": row["archive"],
            "snapshot": row["snapshot"],
            "server": row["one"],
            "process": row["two"],
            "incarnation": row["incarnation_max"],
            "highest": row["highest_max"],
            "next_number": row["next_number_max"],
        }
        for row in rows
    ]
    return sorted(found, key=lambda row: (row["archive"], row["snapshot"], row["server"], row["process"]))


def _blocked(rows: Sequence[Row], period_seconds: float) -> list[Row]:
    found: list[Row] = [
        {
            "service": row["one"],
            "method": row["two"],
            "samples": row["samples"],
            "blocked_seconds": row["samples"] * period_seconds,
            "longest_wait_seconds": row["waited_max"],
        }
        for row in rows
    ]
    return sorted(found, key=lambda row: (-row["samples"], row["service"], row["method"]))


def _pools(rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = [
        {
            "service": row["one"],
            "pool": row["two"],
            "size": row["size_max"],
            "samples": row["samples"],
            "busy_mean": row["busy_sum"] / row["samples"],
            "busy_max": row["busy_max"],
            "queued_mean": row["queued_sum"] / row["samples"],
            "queued_max": row["queued_max"],
            "full_share": row["full_sum"] / row["sized_sum"] if row["sized_sum"] else None,
        }
        for row in rows
    ]
    return sorted(found, key=_fullest_first)


def _fullest_first(row: Mapping[str, float]) -> tuple[object, ...]:
    share = row["full_share"]
    return (share is None, -(share or 0.0), -row["queued_mean"], row["service"], row["pool"])


def _locks(rows: Sequence[Row], period_seconds: float) -> list[Row]:
    found: list[Row] = [
        {"resource": row["one"], "samples": row["samples"], "waited_seconds": row["samples"] * period_seconds} for row in rows
    ]
    return sorted(found, key=lambda row: (-row["samples"], row["resource"]))


def _holding(rows: Sequence[Row], processes: Sequence[Row]) -> list[Row]:
    """Calls by service and callee's service; a process that reported for two services counts for both."""
    services: dict[str, list[str]] = {}
    for row in processes:
        services.setdefault(row["one"], []).append(row["two"])
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        for callee in services.get(row["two"], ()):
            counts[row["one"], callee] = counts.get((row["one"], callee), 0) + row["samples"]
    found: list[Row] = [{"service": one, "callee": two, "samples": samples} for (one, two), samples in counts.items()]
    return sorted(found, key=lambda row: (-row["samples"], row["service"], row["callee"]))
