"""What a query's filters leave of an archive: the snapshots and days whose files a source has to read.

A filter only narrows: what is not understood narrows nothing, and Spark applies every filter to the rows all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from detector.archive.files import day_of
from detector.archive.offsets import EVERYTHING, Wanted

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting without which no filter reaches a source written in Python."""


def bounds(filters: Iterable[Filter], *, begun_days: bool = False) -> Wanted:
    """The bounds that all of ``filters`` set together; ``begun_days``: a row lies in the folder of the day of its ``begun``."""
    found = EVERYTHING
    for each in filters:
        for name, low, high in _ranges(each):
            if name == "snapshot":
                low, high = (None if at is None else int(at) for at in (low, high))  # noqa: PLW2901
                found = replace(
                    found, snapshot_min=_most(found.snapshot_min, low), snapshot_max=_least(found.snapshot_max, high)
                )
            elif name == "begun" and begun_days:
                first, last = ("" if at is None or not math.isfinite(at) else day_of(at) for at in (low, high))
                found = replace(found, day_min=_most(found.day_min, first), day_max=_least(found.day_max, last))
    return found


def _ranges(each: Filter) -> Iterator[tuple[str, Any, Any]]:
    """The column's name with the values between which a filter lets rows through, both included."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    value = getattr(each, "value", None)
    if len(path) != 1 or value is None:
        return
    if isinstance(each, (EqualTo, EqualNullSafe)):
        yield path[0], value, value
    elif isinstance(each, In):
        values = [one for one in value if one is not None]
        if values:
            yield path[0], min(values), max(values)
    elif isinstance(each, (GreaterThan, GreaterThanOrEqual)):
        yield path[0], value, None
    elif isinstance(each, (LessThan, LessThanOrEqual)):
        yield path[0], None, value


def _most(one: Any, two: Any) -> Any:
    return max((at for at in (one, two) if at not in {None, ""}), default=one)


def _least(one: Any, two: Any) -> Any:
    return min((at for at in (one, two) if at not in {None, ""}), default=one)
