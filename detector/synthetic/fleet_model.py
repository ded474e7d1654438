"""The types of a synthetic fleet: processes, call graph, planted rings, and calls as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Times = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """N processes with their names and pools, and the E edges along which they call (``weights`` sum to 1)."""

    names: Sequence[str]
    pools: Int64s
    callers: Int64s
    callees: Int64s
    weights: NDArray[np.float64]
    methods: Sequence[str] = ("Get", "List", "Update")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A planted deadlock or near miss of ``members`` (indices in the fleet), from snapshot ``first`` to ``last``."""

    number: int
    members: tuple[int, ...]
    first: int
    last: int
    formed: float
    near_miss: bool = False


@dataclass(slots=True, eq=False)
class Served:
    """Calls being served or queued, as columns; ``call`` is the row in :class:`Calls`, or -1 for a call from outside."""

    at: Int64s
    process: Int64s
    tag: Int64s
    call: Int64s


@dataclass(slots=True, eq=False)
class Calls:
    """Outstanding calls, as columns; ``by`` is the row of the caller in :class:`Served`."""

    at: Int64s
    caller: Int64s
    callee: Int64s
    number: Int64s
    by: Int64s
    since: NDArray[np.float64]
    deadline: NDArray[np.float64]
    where: Int64s  # 0 at the server, 1 reply in transit, 2 request in transit


def rank_in(key: Int64s) -> Int64s:
    """Return the number of earlier elements with the same key, for each element."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = np.searchsorted(ordered, ordered)
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - begins
    return rank
