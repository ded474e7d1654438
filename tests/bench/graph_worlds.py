"""Wait graphs for the benchmarks, random and adversarial, made as columns from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from detector.graph.columns import Ints, WaitColumns
from stilltrue.model import PartyName

EMPTY = WaitColumns.of(())


def world(parties: int, waiter: Ints, needs: Ints, targets: Ints) -> WaitColumns:
    """Columns with ``len(targets) // len(waiter)`` targets a wait; the parties' names are their numbers."""
    count, width = len(waiter), len(targets) // max(len(waiter), 1)
    by_row = np.sort(targets.reshape(count, width), axis=1)
    fresh = np.ones_like(by_row, np.bool_)
    fresh[:, 1:] = by_row[:, 1:] > by_row[:, :-1]
    sizes = fresh.sum(axis=1)
    indptr = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=indptr[1:])
    nothing = np.full(count, np.nan)
    return replace(
        EMPTY,
        names=tuple(PartyName(str(party)) for party in range(parties)),
        waiter=waiter.astype(np.int32),
        needs=np.minimum(needs, sizes).astype(np.int32),
        indptr=indptr,
        targets=by_row[fresh].astype(np.int32),
        deadline=nothing,
        since=nothing,
        number=np.full(count, -1, np.int64),
        uncoloured=np.zeros(count, np.bool_),
    )


def random_world(parties: int, width: int, needs: int, waiting: float, seed: int = 1) -> WaitColumns:
    """A share ``waiting`` of the parties wait for ``needs`` of ``width`` others."""
    rng = np.random.default_rng(seed)
    waiter = np.flatnonzero(rng.random(parties) < waiting)
    targets = rng.integers(0, parties, len(waiter) * width)
    return world(parties, waiter, np.full(len(waiter), needs), targets)


def ladder(parties: int, width: int, needs: int) -> WaitColumns:
    """Each party waits for ``needs`` of the ``width`` before it: one is freed a round."""
    waiter = np.arange(width, parties)
    targets = (waiter[:, None] - np.arange(1, width + 1)[None, :]).ravel()
    return world(parties, waiter, np.full(len(waiter), needs), targets)


def rings(parties: int, size: int) -> WaitColumns:
    """Many rings of ``size`` parties; one ring of all when ``size`` is ``parties``."""
    waiter = np.arange(parties // size * size)
    targets = waiter // size * size + (waiter + 1) % size
    return world(parties, waiter, np.ones(len(waiter), np.int64), targets)


def deep(parties: int, width: int = 2) -> WaitColumns:
    """Ways with many turns: each party waits for 2 of ``width`` that lie a little before it, some of them far."""
    rng = np.random.default_rng(3)
    waiter = np.arange(64, parties)
    back = rng.integers(1, 64, (len(waiter), width))
    return world(parties, waiter, np.full(len(waiter), min(2, width)), (waiter[:, None] - back).ravel())


def mixed(columns: WaitColumns, seed: int = 5) -> WaitColumns:
    """The same world with its parties numbered in no order: what is close in the graph is far apart in memory."""
    rng = np.random.default_rng(seed)
    parties = len(columns.names)
    place = rng.permutation(parties).astype(np.int32)
    width = int(columns.sizes().max())
    rows = np.repeat(np.arange(len(columns)), columns.sizes())
    spread = np.repeat(place[columns.targets[columns.indptr[:-1]]][:, None], width, axis=1)  # a target given twice counts once
    spread[rows, np.arange(len(columns.targets)) - np.repeat(columns.indptr[:-1], columns.sizes())] = place[columns.targets]
    waiter = place[columns.waiter]
    order = np.argsort(waiter)
    return world(parties, waiter[order], columns.needs[order], spread[order].ravel())


WORLDS: dict[str, Callable[[int], WaitColumns]] = {
    "sparse OR (1 of 2, 90 % wait)": lambda n: random_world(n, 2, 1, 0.9),
    "sparse AND (2 of 2, 40 % wait)": lambda n: random_world(n, 2, 2, 0.4),
    "sparse AND (2 of 2, 90 % wait)": lambda n: random_world(n, 2, 2, 0.9),
    "k of n (2 of 3, 85 % wait)": lambda n: random_world(n, 3, 2, 0.85),
    "k of n (3 of 5, 95 % wait)": lambda n: random_world(n, 5, 3, 0.95),
    "pools (1 of 5, 99 % wait)": lambda n: random_world(n, 5, 1, 0.99),
    "one giant knot (1 of 2, all wait)": lambda n: random_world(n, 2, 1, 1.0),
    "deep (2 of 2, near)": deep,
    "one chain": lambda n: ladder(n, 1, 1),
    "ladder (2 of 3)": lambda n: ladder(n, 3, 2),
    "deep, numbered in no order": lambda n: mixed(deep(n)),
    "one chain, numbered in no order": lambda n: mixed(ladder(n, 1, 1)),
    "ladder, numbered in no order": lambda n: mixed(ladder(n, 3, 2)),
    "one giant ring": lambda n: rings(n, n),
    "many rings of 4": lambda n: rings(n, 4),
}
