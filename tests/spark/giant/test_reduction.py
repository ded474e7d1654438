"""The giant path finds the kernel's remainder and core, for every shape, in a bounded number of rounds."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyarrow import fs
from pyspark.sql import SparkSession

from detector.graph.columns import columns_of_lists
from detector.graph.reduction import reduce
from detector.spark.giant.numbering import number_names
from detector.spark.giant.reduction import reduce_giant
from detector.spark.giant.shard import Shard, WaitsError

Waits = list[tuple[int, int, list[int]]]


def _random(parties: int, seed: int) -> Waits:
    """k-of-n waits of most parties, some with two; a ring at the end so that something is left."""
    random = np.random.default_rng(seed)
    waits: Waits = []
    for waiter in range(parties - 5):
        for _ in range(int(random.choice([0, 1, 1, 1, 1, 2]))):
            among = random.choice(parties, int(random.integers(1, 4)), replace=False).tolist()
            waits.append((waiter, int(random.integers(1, len(among) + 1)), among))
    return waits + [(parties - 5 + at, 1, [parties - 5 + (at + 1) % 5]) for at in range(5)]


def _chain(parties: int, *, shuffled: bool) -> Waits:
    order: NDArray[np.int64] = np.arange(parties)
    if shuffled:
        order = np.random.default_rng(1).permutation(parties)
    return [(int(order[at]), 1, [int(order[at + 1])]) for at in range(parties - 1)]


def _lasso(parties: int) -> Waits:
    """A shuffled chain whose end waits for its middle."""
    chain = _chain(parties, shuffled=True)
    return [*chain, (chain[-1][2][0], 1, [chain[parties // 2][0]])]


def _star(parties: int) -> Waits:
    return [(0, parties - 1, list(range(1, parties))), *((at, 1, [0]) for at in range(1, parties))]


def _write(waits: Waits, folder: Path) -> str:
    folder.mkdir()
    rows = pa.table(
        {
            "waiter": pa.array([wait[0] for wait in waits], pa.int64()),
            "needs": pa.array([wait[1] for wait in waits], pa.int32()),
            "among": pa.array([wait[2] for wait in waits], pa.list_(pa.int64())),
        }
    )
    half = len(waits) // 2
    pq.write_table(rows.slice(0, half), folder / "a.parquet", row_group_size=60)
    pq.write_table(rows.slice(half), folder / "b.parquet", row_group_size=60)
    return str(folder)


def _kernel(waits: Waits) -> dict[int, bool]:
    columns = columns_of_lists(
        waiters=[f"{wait[0]:06d}" for wait in waits],
        needs=[wait[1] for wait in waits],
        sizes=[len(wait[2]) for wait in waits],
        among=[f"{target:06d}" for wait in waits for target in wait[2]],
    )
    reduction = reduce(columns)
    left = reduction.remainder()
    if not len(left):
        return {}
    stuck = {int(columns.names[party]) for party in left.tolist()}
    opened = [wait for wait in waits if wait[0] in stuck and len(set(wait[2]) - stuck) < wait[1]]
    graph = nx.DiGraph((waiter, target) for waiter, _, among in opened for target in among if target in stuck)
    core = {party for part in nx.strongly_connected_components(graph) if len(part) > 1 for party in part}
    core |= set(nx.nodes_with_selfloops(graph))
    return {party: party in core for party in stuck}


def _repeating(parties: int) -> Waits:
    """Random waits that name some of their targets twice, or ten times."""
    waits = []
    for waiter, needs, among in _random(parties, 3):
        often = {0: [among[0]], 1: among[:1] * 9, 2: among[::-1]}.get(waiter % 5, [])
        waits.append((waiter, needs, among + often))
    return waits


CASES = {
    "random": _random(300, 1),
    "random again": _random(200, 2),
    "repeating": _repeating(300),
    "chain": _chain(500, shuffled=False),
    "shuffled chain": _chain(500, shuffled=True),
    "lasso": _lasso(500),
    "star": _star(200),
}


@pytest.mark.parametrize(
    ("name", "targets_max", "rounds_max"),
    [pytest.param(name, 0, 2, marks=pytest.mark.longer if name == "random" else ()) for name in CASES]
    + [("random", 10**9, 8), ("random again", 0, 40), ("lasso", 0, 12)],
)
def test_shards_find_what_one_kernel_finds(
    spark: SparkSession, tmp_path: Path, name: str, targets_max: int, rounds_max: int
) -> None:
    waits = CASES[name]
    parties = 1 + max(max(wait[0], *wait[2]) for wait in waits)
    folder = _write(waits, tmp_path / "waits")
    found = reduce_giant(
        spark, folder, parties, str(tmp_path), shard_targets=180, targets_max=targets_max, rounds_max=rounds_max
    )
    wanted = _kernel(waits)
    assert {row.party: row.core for row in found.remainder.collect()} == wanted
    assert (found.holds, found.blocked) == (bool(wanted), len(wanted))
    assert found.shards > 1
    assert found.rounds <= rounds_max
    assert not list(tmp_path.glob("giant-*"))


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        ((7, 2, [1, 1]), r"b.parquet, row group 0: row 0: needs is 2, of 1 different parties in among"),
        ((7, 0, [1]), r"row 0: needs is 0, of 1"),
        ((10, 1, [1]), r"b.parquet, row group 0: waiter: party 10 is not between 0 and 9"),
        ((7, 1, [-1]), r"b.parquet, row group 0: among: party -1 is not between 0 and 9"),
        ((7, 1, [None]), r"b.parquet, row group 0: among is null in some row"),
    ],
)
def test_an_invalid_wait_is_named(wait: tuple[int, int, list[int]], said: str, tmp_path: Path) -> None:
    folder = Path(_write([(1, 1, [2]), wait], tmp_path / "waits"))
    with pytest.raises(WaitsError, match=said):
        Shard.read(fs.LocalFileSystem(), [(str(folder / "b.parquet"), 0)], parties=10)


@pytest.mark.parametrize("name", [pytest.param("random", marks=pytest.mark.longer), "lasso", "star"])
def test_names_are_numbered_in_order_with_the_same_answer(spark: SparkSession, tmp_path: Path, name: str) -> None:
    waits = CASES[name]
    parties = 1 + max(max(wait[0], *wait[2]) for wait in waits)
    label = [f"orders-{at * 7919 % parties}/Place#{at}" for at in range(parties)]
    folder = Path(_write(waits, tmp_path / "waits"))
    for path in folder.iterdir():
        rows = pq.read_table(path).to_pylist()
        named = [row | {"waiter": label[row["waiter"]], "among": [label[at] for at in row["among"]]} for row in rows]
        pq.write_table(pa.Table.from_pylist(named), path, row_group_size=60)
    numbered = number_names(spark, str(folder), str(tmp_path / "work"), shard_targets=180)
    names = {row.party: row.name for row in numbered.names.collect()}
    assert [names[party] for party in range(numbered.parties)] == sorted({label[at] for w in waits for at in (w[0], *w[2])})
    found = reduce_giant(spark, numbered.waits, numbered.parties, str(tmp_path), shard_targets=180, targets_max=0)
    wanted = {label[party]: core for party, core in _kernel(waits).items()}
    assert {names[row.party]: row.core for row in found.remainder.collect()} == wanted
    assert not (tmp_path / "work" / "pieces").exists()
