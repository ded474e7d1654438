"""Numbers the parties of a giant snapshot by name for :func:`reduce_giant`.

The rules:

1. Each shard sorts its distinct names and splits them at the same few names (*splitters*, from a sample) into pieces. It stores
   its waits with numbers that refer to its own names.
2. For each range between two splitters, the pieces of all shards are merged, sorted and deduplicated. A name's number is its
   index in its range plus the number of names in all earlier ranges.
3. Each shard looks its names up, one range at a time, and renumbers its waits.

A worker holds at most one shard's names and one range's names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from detector.archive.rows.list_columns import combined, lengths
from detector.graph.columns import Ints
from detector.spark.giant.shard_store import ShardFolder, Shards, shards_of

SHARD_TARGETS = 2_000_000
SAMPLED_NAMES = 20_000
WAITS = pa.schema([("waiter", pa.int64()), ("needs", pa.int32()), ("among", pa.list_(pa.int64()))])
_Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """Waits of numbered parties in the folder ``waits``; ``names`` has a row (``party``, ``name``) for each of ``parties``."""

    waits: str
    parties: int
    names: DataFrame


def number_names(spark: SparkSession, waits: str, work: str, *, shard_targets: int = SHARD_TARGETS) -> Numbered:
    """Number the parties of the waits in the folder ``waits``.

    Parameters
    ----------
    waits : a folder (or URI) of Parquet files with ``waiter`` (a name), ``needs`` and ``among`` (a list of names).
    work : an empty folder (or URI) that all workers share, for the numbered waits and the names.
    shard_targets : the approximate number of targets that one worker holds at once.

    Returns
    -------
    Numbered
        Its ``waits`` and ``parties`` are the arguments of :func:`~detector.spark.giant.reduction.reduce_giant`.
    """
    place = ShardFolder(folder=work, parties=0)
    filesystem, root = place.open()
    for name in ("pieces", "numbered", "names"):
        filesystem.create_dir(f"{root}/{name}", recursive=True)
    shards, _ = shards_of(waits, shard_targets)
    splitters = _splitters(filesystem, shards)
    _run(spark, _split_names(place, shards, splitters), len(shards))
    counts = _run(spark, _merge_ranges(place, len(shards)), len(splitters) + 1)
    begins = [0, *accumulate(counts)]
    _run(spark, _number_ranges(place, begins), len(counts))
    _run(spark, _renumber_waits(place, begins), len(shards))
    filesystem.delete_dir(f"{root}/pieces")
    scheme = "" if "://" in work else "file://"
    names = spark.read.schema("party long, name string").parquet(f"{scheme}{work}/names")
    return Numbered(waits=f"{work}/numbered", parties=begins[-1], names=names)


def _run(spark: SparkSession, work: _Work, tasks: int) -> list[int]:
    """Run tasks that return a number each; return the numbers in the order of the tasks."""
    frame = spark.range(0, tasks, 1, tasks).mapInArrow(work, "task long, result long")
    results = {row.task: row.result for row in frame.collect()}
    return [results[task] for task in range(tasks)]


def _splitters(filesystem: fs.FileSystem, shards: Shards) -> list[str]:
    """Return names that split all names into ranges of about equal size, one for each shard."""
    names: list[str] = []
    for (path, group), *_ in shards:
        with filesystem.open_input_file(path) as source:
            waiters = pq.ParquetFile(source).read_row_group(group, columns=["waiter"]).column("waiter")
        step = max(1, len(waiters) * len(shards) // SAMPLED_NAMES)
        names += waiters.take(pa.array(np.arange(0, len(waiters), step))).to_pylist()
    names = sorted(set(names))
    places = np.linspace(0, len(names), len(shards) + 1).astype(int)[1:-1]
    return sorted({names[at] for at in places.tolist() if at < len(names)})


def _split_names(place: ShardFolder, shards: Shards, splitters: list[str]) -> _Work:
    """Apply rule 1 to each shard."""

    def task(shard: int) -> int:
        filesystem, root = place.open()
        rows = _read(filesystem, shards[shard])
        among = combined(rows.column("among"))
        coded = combined(pa.concat_arrays([combined(rows.column("waiter")), among.flatten()])).dictionary_encode()
        order = pc.array_sort_indices(coded.dictionary)
        names = coded.dictionary.take(order)
        rank = np.empty(len(names), np.int64)
        rank[order.to_numpy()] = np.arange(len(names))
        local = rank[coded.indices.to_numpy()]
        waits = _waits(local[: rows.num_rows], rows.column("needs"), lengths(among), local[rows.num_rows :])
        pq.write_table(waits, f"{root}/pieces/waits-{shard}", filesystem=filesystem)
        cuts = [0, *(bisect_right(_LazyNames(names), splitter) for splitter in splitters), len(names)]
        for number, (low, high) in enumerate(pairwise(cuts)):
            _write_names(filesystem, f"{root}/pieces/{shard}-{number}", names[low:high])
        return len(names)

    return _per_task(task)


def _merge_ranges(place: ShardFolder, shards: int) -> _Work:
    """Apply rule 2 to each range; return its number of names."""

    def task(number: int) -> int:
        filesystem, root = place.open()
        pieces = [_read_names(filesystem, f"{root}/pieces/{shard}-{number}") for shard in range(shards)]
        names = pc.unique(pa.concat_arrays(pieces))
        _write_names(filesystem, f"{root}/pieces/range-{number}", names.take(pc.array_sort_indices(names)))
        return len(names)

    return _per_task(task)


def _number_ranges(place: ShardFolder, begins: list[int]) -> _Work:
    """Write each range's names with their numbers."""

    def task(number: int) -> int:
        filesystem, root = place.open()
        names = _read_names(filesystem, f"{root}/pieces/range-{number}")
        rows = pa.table({"party": np.arange(len(names)) + begins[number], "name": names})
        pq.write_table(rows, f"{root}/names/{number:06d}.parquet", filesystem=filesystem)
        return len(names)

    return _per_task(task)


def _renumber_waits(place: ShardFolder, begins: list[int]) -> _Work:
    """Apply rule 3 to each shard."""

    def task(shard: int) -> int:
        filesystem, root = place.open()
        numbers = []
        for number, begin in enumerate(begins[:-1]):
            own = _read_names(filesystem, f"{root}/pieces/{shard}-{number}")
            if len(own):
                known = _read_names(filesystem, f"{root}/pieces/range-{number}")
                numbers.append(pc.index_in(own, known).to_numpy().astype(np.int64) + begin)
        number_of = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        rows = pq.read_table(f"{root}/pieces/waits-{shard}", filesystem=filesystem)
        among = combined(rows.column("among"))
        waiter, targets = rows.column("waiter").to_numpy(), among.flatten().to_numpy()
        waits = _waits(number_of[waiter], rows.column("needs"), lengths(among), number_of[targets])
        pq.write_table(waits, f"{root}/numbered/{shard:06d}.parquet", filesystem=filesystem)
        return int(waits.num_rows)

    return _per_task(task)


def _per_task(task: Callable[[int], int]) -> _Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"task": [number], "result": [task(number)]})

    return work


class _LazyNames:
    """Sorted names for a binary search, which reads only a few of them."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, at: int) -> str:
        return str(self._names[at])


def _read(filesystem: fs.FileSystem, places: list[tuple[str, int]]) -> pa.Table:
    tables = []
    for path, group in places:
        with filesystem.open_input_file(path) as source:
            tables.append(pq.ParquetFile(source).read_row_group(group, columns=["waiter", "needs", "among"], use_threads=False))
    return pa.concat_tables(tables)


def _waits(waiter: Ints, needs: pa.ChunkedArray, sizes: Ints, targets: Ints) -> pa.Table:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    among = pa.ListArray.from_arrays(pa.array(offsets), pa.array(targets, pa.int64()))
    return pa.table([pa.array(waiter, pa.int64()), needs.cast(pa.int32()), among], schema=WAITS)


def _write_names(filesystem: fs.FileSystem, path: str, names: pa.Array) -> None:
    pq.write_table(pa.table({"name": names}), path, filesystem=filesystem, use_dictionary=False)


def _read_names(filesystem: fs.FileSystem, path: str) -> pa.Array:
    return combined(pq.read_table(path, filesystem=filesystem).column("name"))
