"""Writes giant wait graphs as Parquet, a million waits at a time: `python tests/bench/giant_graphs.py SHAPE TARGETS FOLDER`.

Prints how many parties the graph has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Column = NDArray[np.int64]
Waits = tuple[Column, Column, Column, Column]
"""Waiters, needs, how many targets each wait has, and the targets."""
WAITS_AT_ONCE = 1_000_000
RING = 1000


def random(targets: int) -> Iterator[Waits]:
    """k-of-n waits of random parties, one in twenty waiting for nothing; a ring is all that is left."""
    draw = np.random.default_rng(1)
    parties = targets // 2
    for low, high in _pieces(0, parties):
        waiter = low + np.flatnonzero(draw.random(high - low) < 0.95)
        sizes = draw.integers(1, 4, len(waiter))
        needs = (draw.random(len(waiter)) * sizes).astype(np.int64) + 1
        yield waiter, needs, sizes, draw.integers(0, parties, int(sizes.sum()))
    ring = np.arange(RING)
    yield parties + ring, np.ones_like(ring), np.ones_like(ring), parties + (ring + 1) % RING


def chain(targets: int) -> Iterator[Waits]:
    """Each waits for one other, in a row, shuffled: as many rounds as targets, if one went round by round."""
    order = np.random.default_rng(1).permutation(targets + 1).astype(np.int32)
    for low, high in _pieces(0, targets):
        one = np.ones(high - low, np.int64)
        yield order[low:high].astype(np.int64), one, one, order[low + 1 : high + 1].astype(np.int64)


def deep(targets: int) -> Iterator[Waits]:
    """Each waits for two of the next hundred: no cycle, and a depth of a fiftieth of the parties."""
    draw = np.random.default_rng(1)
    parties = targets // 2
    for low, high in _pieces(0, parties):
        waiter = np.arange(low, high)
        both = np.stack((waiter + draw.integers(1, 51, high - low), waiter + draw.integers(51, 101, high - low)), 1)
        two = np.full(high - low, 2)
        yield waiter, two, two, both.ravel()


def component(targets: int) -> Iterator[Waits]:
    """One shuffled ring with a random second way for each: a single component, and all of it core."""
    draw = np.random.default_rng(1)
    parties = targets // 2
    order = draw.permutation(parties).astype(np.int32)
    for low, high in _pieces(0, parties):
        following = order[np.arange(low + 1, high + 1) % parties].astype(np.int64)
        both = np.stack((following, (following + draw.integers(1, parties - 1, high - low)) % parties), 1)
        one = np.ones(high - low, np.int64)
        yield order[low:high].astype(np.int64), one, 2 * one, both.ravel()


def star(targets: int) -> Iterator[Waits]:
    """One waits for all the others, and they for it."""
    half = targets // 2
    yield np.asarray([0]), np.asarray([half]), np.asarray([half]), np.arange(1, half + 1)
    for low, high in _pieces(1, half + 1):
        one = np.ones(high - low, np.int64)
        yield np.arange(low, high), one, one, np.zeros(high - low, np.int64)


SHAPES: dict[str, Callable[[int], Iterator[Waits]]] = {
    "random": random,
    "chain": chain,
    "deep": deep,
    "component": component,
    "star": star,
}


def write(shape: str, targets: int, folder: Path) -> int:
    """Write the graph to ``folder``, a row group for each million waits; how many parties it has."""
    parties = 0
    folder.mkdir(parents=True)
    kind = pa.schema([("waiter", pa.int64()), ("needs", pa.int32()), ("among", pa.list_(pa.int64()))])
    with pq.ParquetWriter(folder / "waits.parquet", kind) as writer:
        for waiter, needs, sizes, among in SHAPES[shape](targets):
            offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
            lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(among))
            rows = pa.table([pa.array(waiter), pa.array(needs.astype(np.int32)), lists], schema=kind)
            writer.write_table(rows, row_group_size=WAITS_AT_ONCE)
            parties = max(parties, 1 + int(waiter.max()), 1 + int(among.max()))
    return parties


def _pieces(low: int, high: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + WAITS_AT_ONCE, high)) for at in range(low, high, WAITS_AT_ONCE))


if __name__ == "__main__":
    print(write(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
