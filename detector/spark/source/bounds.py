"""The range of snapshots and days that a data source reads, as its options.

A query's filters are not pushed down to our sources: Spark 4.3 stores filters that it has pushed down to a Python source in the
DataFrame, so that the next query over it, or the other side of a union, would silently lack rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from detector.archive.files import check_day
from detector.archive.offsets import Wanted

NAMES = tuple(each.name for each in fields(Wanted))


def options_of(wanted: Wanted) -> dict[str, str]:
    """Convert bounds to options, without those that are unset."""
    given = {name: getattr(wanted, name) for name in NAMES}
    return {name: str(value) for name, value in given.items() if value not in {None, ""}}


def bounds_of(options: Mapping[str, str]) -> Wanted:
    """Parse bounds from options. Raises ValueError if a number or a day is invalid."""
    low, high = (int(options[name]) if name in options else None for name in ("snapshot_min", "snapshot_max"))
    first, last = (check_day(options[name]) if name in options else "" for name in ("day_min", "day_max"))
    return Wanted(snapshot_min=low, snapshot_max=high, day_min=first, day_max=last)
