"""The types of a synthetic fleet: processes, call graph, planted rings, and the calls of some snapshots as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Times = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """N processes: their names, services and pools, and the E edges along which they call (``weights`` sum to 1)."""

    names: Sequence[str]
    pools: Whole
    callers: Whole
    callees: Whole
    weights: NDArray[np.float64]
    methods: Sequence[str] = ("Get", "List", "Update")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A planted deadlock (or near miss) of ``members`` (positions in the fleet), from ``first`` to ``last`` snapshot."""

    number: int
    members: tuple[int, ...]
    first: int
    last: int
    formed: float
    near_miss: bool = False


@dataclass(slots=True, eq=False)
class Served:
    """Calls being served or queued, column by column; ``call`` is the call's row, or -1 from outside."""

    at: Whole
    process: Whole
    tag: Whole
    call: Whole


@dataclass(slots=True, eq=False)
class Calls:
    """Calls made, column by column; ``by`` is the row of the served call whose party makes it."""

    at: Whole
    caller: Whole
    callee: Whole
    number: Whole
    by: Whole
    since: NDArray[np.float64]
    deadline: NDArray[np.float64]
    where: Whole  # 0 at the server, 1 reply in transit, 2 request in transit


def rank_in(key: Whole) -> Whole:
    """For each element, the number of earlier ones with the same key."""
    order = np.argsort(key, kind="stable")
    lined = key[order]
    begins = np.searchsorted(lined, lined)
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - begins
    return rank
