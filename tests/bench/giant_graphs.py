"""Writes giant wait graphs as Parquet, a million waits at a time: `python tests/bench/giant_graphs.py SHAPE TARGETS FOLDER`.

Prints how many parties the graph has. With a fourth word, `names`, parties are written by name instead of by number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

Column = NDArray[np.int64]
Waits = tuple[Column, Column, Column, Column]
"""Waiters, needs, how many targets each wait has, and the targets."""
WAITS_AT_ONCE = 1_000_000
RING = 1000
PARTIES_PER_PROCESS = 20


def random(targets: int) -> Iterator[Waits]:
    """k-of-n waits of random parties, one in twenty waiting for nothing; a ring is all that is left."""
    draw = np.random.default_rng(1)
    parties = targets // 2
    for low, high in _pieces(0, parties):
        waiter = low + np.flatnonzero(draw.random(high - low) < 0.95)
        sizes = draw.integers(1, 4, len(waiter))
        needs = (draw.random(len(waiter)) * sizes).astype(np.int64) + 1
        among = draw.integers(0, parties, int(sizes.sum()))
        yield waiter, np.minimum(needs, _different(sizes, among)), sizes, among
    ring = np.arange(RING)
    yield parties + ring, np.ones_like(ring), np.ones_like(ring), parties + (ring + 1) % RING


def _different(sizes: Column, among: Column) -> Column:
    """How many different targets each wait has, of one to three."""
    begins = np.cumsum(sizes) - sizes
    first, second, third = (among[begins + np.minimum(at, sizes - 1)] for at in range(3))
    twice = (sizes > 1) & (first == second)
    again = (sizes > 2) & ((third == first) | (third == second))
    different: Column = sizes - twice - again
    return different


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


def write(shape: str, targets: int, folder: Path, said: Callable[[Column], pa.Array] = pa.array) -> int:
    """Write the graph to ``folder``, a row group for each million waits, parties as they are ``said``; how many there are."""
    parties = 0
    folder.mkdir(parents=True)
    party = said(np.zeros(0, np.int64)).type
    kind = pa.schema([("waiter", party), ("needs", pa.int32()), ("among", pa.list_(party))])
    with pq.ParquetWriter(folder / "waits.parquet", kind) as writer:
        for waiter, needs, sizes, among in SHAPES[shape](targets):
            offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
            lists = pa.ListArray.from_arrays(pa.array(offsets), said(among))
            rows = pa.table([said(waiter), pa.array(needs.astype(np.int32)), lists], schema=kind)
            writer.write_table(rows, row_group_size=WAITS_AT_ONCE)
            parties = max(parties, 1 + int(waiter.max()), 1 + int(among.max()))
    return parties


def names(parties: Column) -> pa.Array:
    """What parties are called: ``orders-123/Place#7``."""
    process, party = (pc.cast(pa.array(part), pa.string()) for part in np.divmod(parties, PARTIES_PER_PROCESS))
    return pc.binary_join_element_wise("orders-", process, "/Place#", party, "")


def _pieces(low: int, high: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + WAITS_AT_ONCE, high)) for at in range(low, high, WAITS_AT_ONCE))


if __name__ == "__main__":
    print(write(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), names if "names" in sys.argv[4:] else pa.array))
