"""The snapshots and days that a data source is asked for, as its options.

A query's filters are not pushed down to our sources. Spark 4.3 keeps what it has pushed down to a Python source with the
DataFrame: the next query over the same one, or the other side of a union, would lack rows without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from detector.archive.files import check_day
from detector.archive.offsets import Wanted

NAMES = tuple(each.name for each in fields(Wanted))


def options_of(wanted: Wanted) -> dict[str, str]:
    """Bounds as options; those that there are not are left out."""
    given = {name: getattr(wanted, name) for name in NAMES}
    return {name: str(value) for name, value in given.items() if value not in {None, ""}}


def bounds_of(options: Mapping[str, str]) -> Wanted:
    """The bounds that options name. Raises ValueError when a number or a day is none."""
    low, high = (int(options[name]) if name in options else None for name in ("snapshot_min", "snapshot_max"))
    first, last = (check_day(options[name]) if name in options else "" for name in ("day_min", "day_max"))
    return Wanted(snapshot_min=low, snapshot_max=high, day_min=first, day_max=last)
