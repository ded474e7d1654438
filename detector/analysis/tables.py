"""The result tables made from the counters of an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import MICROSECONDS, TALLY, merged
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.schema import FLOAT64, INT64, STRING

SCHEMAS = {
    "coverage": pa.schema(
        [
            ("hour", FLOAT64),
            *((name, INT64) for name in ("snapshots", "complete", "incomplete", "rejected", "members", "missing")),
        ]
    ),
    "missing": pa.schema(
        [("process", STRING), ("service", STRING), ("snapshots", INT64), ("first", FLOAT64), ("last", FLOAT64)]
    ),
    "clocks": pa.schema(
        [("process", STRING), ("ahead_seconds", FLOAT64), ("behind_seconds", FLOAT64), ("delay_mean_seconds", FLOAT64)],
    ),
    "orphans": pa.schema(
        [
            ("archive", STRING),
            ("snapshot", INT64),
            ("server", STRING),
            ("process", STRING),
            ("incarnation", INT64),
            ("highest", INT64),
            ("next_number", INT64),
        ]
    ),
    "blocked": pa.schema(
        [
            ("service", STRING),
            ("method", STRING),
            ("samples", INT64),
            ("blocked_seconds", FLOAT64),
            ("longest_wait_seconds", FLOAT64),
        ]
    ),
    "pools": pa.schema(
        [
            ("service", STRING),
            ("pool", STRING),
            ("size", INT64),
            ("samples", INT64),
            ("busy_mean", FLOAT64),
            ("busy_max", INT64),
            ("queued_mean", FLOAT64),
            ("queued_max", INT64),
            ("full_share", FLOAT64),
        ]
    ),
    "locks": pa.schema([("resource", STRING), ("samples", INT64), ("waited_seconds", FLOAT64)]),
    "holding": pa.schema([("service", STRING), ("callee", STRING), ("samples", INT64)]),
}
"""The schemas of the result tables; docs/archive.md explains the columns."""


def totals(tally: pa.Table, period_seconds: float) -> dict[str, list[Row]]:
    """Return the rows of each result table of ``SCHEMAS`` but coverage and missing, from a ``TALLY`` or a ``DAILY`` one."""
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
    """Count calls by service and callee's service; a process that reported for two services counts for both."""
    services: dict[str, list[str]] = {}
    for row in processes:
        services.setdefault(row["one"], []).append(row["two"])
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        for callee in services.get(row["two"], ()):
            counts[row["one"], callee] = counts.get((row["one"], callee), 0) + row["samples"]
    found: list[Row] = [{"service": one, "callee": two, "samples": samples} for (one, two), samples in counts.items()]
    return sorted(found, key=lambda row: (-row["samples"], row["service"], row["callee"]))
