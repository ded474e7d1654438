"""Reduces one giant snapshot, a wait-for graph of up to about 10^8 targets, in shards, with the same verdicts as one kernel.

The rules:

1. The waits are in Parquet files (``waiter``, ``needs``, ``among``: integers below ``parties``). A shard is a set of their row
   groups; nothing is shuffled.
2. In a round, each shard reduces its own waits as far as possible. A party that also waits in other shards is held until all of
   them have freed it.
3. Shards exchange only one bit per party: whether it is still blocked there. A shard reads the others' latest bits, so later
   shards of a round benefit from earlier ones; outdated bits would only hold more parties.
4. Once the open waits have at most ``targets_max`` targets, one kernel finishes the reduction (at once, if they never had
   more). It also finishes after ``rounds_max`` rounds, so that no shape of graph (such as a long chain) needs many rounds.
5. If a round frees no party, the blocked parties are the remainder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from detector.spark.giant.shard import Shard, concatenated, waiting_in
from detector.spark.giant.shard_store import ShardFolder, Shards, shards_of

SHARD_TARGETS = 26_000_000
"""Most targets that one worker holds in a round, at a peak of about 50 bytes each."""
TARGETS_MAX = 24_000_000
"""Most targets that one kernel reduces, at a peak of about 80 bytes each."""
ROUNDS_MAX = 16
SWEEP_SHARE_MIN = 0.25
"""A shard's round ends at the sweep that frees less than this share of the first one's parties: the next round frees more."""
_Source = Callable[[fs.FileSystem, str], Shard]
_Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ANSWER = "shard int, targets long, blocked long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Giant:
    """The result: ``remainder`` has a row per deadlocked party (``party``, ``core``), ``blocked`` in all."""

    holds: bool
    blocked: int
    rounds: int
    shards: int
    remainder: DataFrame


def reduce_giant(
    spark: SparkSession,
    waits: str,
    parties: int,
    work: str,
    *,
    shard_targets: int = SHARD_TARGETS,
    targets_max: int = TARGETS_MAX,
    rounds_max: int = ROUNDS_MAX,
) -> Giant:
    """Find the remainder and core of the waits in the folder ``waits``.

    Parameters
    ----------
    waits : a folder (or URI) of Parquet files (rule 1). If a waiter has several rows, all of them must end.
    parties : the highest party number plus 1.
    work : a folder (or URI) that all workers share. The remainder is written there; the state of the rounds is in a new folder
        that is removed at the end.
    shard_targets : most targets of a shard, which one Python worker holds at once. Shards are smaller if there are more cores.
    """
    filesystem, root = ShardFolder(folder=work, parties=parties).open()
    folder = f"{root}/giant-{uuid.uuid4().hex[:8]}"
    filesystem.create_dir(folder, recursive=True)
    scheme = work.split("://", 1)[0] + "://" if "://" in work else ""
    shards, targets = shards_of(waits, shard_targets, spark.sparkContext.defaultParallelism)
    rounds = _Rounds(spark, ShardFolder(folder=scheme + folder, parties=parties), shards)
    result = f"{root}/remainder-{PurePosixPath(folder).name}.parquet"
    try:
        steps = rounds.run(targets, targets_max, rounds_max, result)
    finally:
        filesystem.delete_dir(folder)
    remainder = spark.read.schema("party long, core boolean").parquet((scheme or "file://") + result)
    blocked = remainder.count()
    return Giant(holds=blocked > 0, blocked=blocked, rounds=steps, shards=len(rounds.shards), remainder=remainder)


class _Rounds:
    """The driver's side: starts each round, and sums two numbers from each shard."""

    def __init__(self, spark: SparkSession, place: ShardFolder, shards: Shards) -> None:
        self._spark = spark
        self._place = place
        self.shards = shards

    def run(self, targets: int, targets_max: int, rounds_max: int, result: str) -> int:
        """Run rounds until a rule ends them; one worker writes the remainder and the core. Return the number of rounds."""
        if targets <= targets_max:
            self._map(_finish(self._place, result, _all_waits(self.shards, self._place.parties), kernel=True), tasks=1)
            return 0
        _, blocked = self._map(_find_waiters(self._place, self.shards))
        done = False
        for step in range(1, rounds_max + 1):
            targets, now = self._map(_reduce_shards(self._place, len(self.shards), self.shards if step == 1 else None))
            done, blocked = now == blocked, now
            if done or targets <= targets_max:
                break
        self._map(_finish(self._place, result, _open_waits(len(self.shards)), kernel=not done), tasks=1)
        return step

    def _map(self, work: _Work, tasks: int | None = None) -> tuple[int, int]:
        """Run one round; return the number of targets left and the number of bits set, in all shards."""
        count = tasks or len(self.shards)
        frame = self._spark.range(0, count, 1, count).selectExpr("cast(id as int) as shard")
        rows = frame.mapInArrow(work, _ANSWER).collect()
        return sum(row["targets"] for row in rows), sum(row["blocked"] for row in rows)


def shard_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of a task's shards."""
    for batch in batches:
        yield from batch.column("shard").to_pylist()


def _answer(shard: int, targets: int, blocked: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "shard": pa.array([shard], pa.int32()),
            "targets": pa.array([targets], pa.int64()),
            "blocked": pa.array([blocked], pa.int64()),
        }
    )


def _find_waiters(place: ShardFolder, shards: Shards) -> _Work:
    """Find the parties that wait in each shard; read nothing else of the files yet."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, _ = place.open()
        for shard in shard_numbers(batches):
            blocked = waiting_in(filesystem, shards[shard], place.parties)
            place.write_bits(shard, blocked)
            yield _answer(shard, 0, int(np.count_nonzero(blocked)))

    return work


def _reduce_shards(place: ShardFolder, count: int, shards: Shards | None) -> _Work:
    """Run a round over all ``count`` shards: the original ``shards`` if given, else what the previous round left of them."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in shard_numbers(batches):
            state = f"{root}/state-{shard}"
            own = (
                Shard.load(filesystem, state)
                if shards is None
                else Shard.read(filesystem, shards[shard], place.parties).sorted_by_waiter()
            )
            own = own.reduced(place.others(shard, count), SWEEP_SHARE_MIN)
            own.save(filesystem, state)
            blocked = own.waiters(place.parties)
            place.write_bits(shard, blocked)
            yield _answer(shard, len(own.targets), int(np.count_nonzero(blocked)))

    return work


def _open_waits(shards: int) -> _Source:
    """Return a function that reads the open waits of all shards after the last round."""

    def read(filesystem: fs.FileSystem, root: str) -> Shard:
        return concatenated([Shard.load(filesystem, f"{root}/state-{number}") for number in range(shards)])

    return read


def _all_waits(shards: Shards, parties: int) -> _Source:
    """Return a function that reads the original waits of all shards."""

    def read(filesystem: fs.FileSystem, _: str) -> Shard:
        return Shard.read(filesystem, [place for shard in shards for place in shard], parties)

    return read


def _finish(place: ShardFolder, result: str, source: _Source, *, kernel: bool) -> _Work:
    """Write the remainder and core of the waits from ``source``, which ``kernel`` says to reduce first."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in shard_numbers(batches):
            left = source(filesystem, root).sorted_by_waiter()
            if kernel:
                left = left.reduced(np.zeros(place.parties, np.bool_))
            left, parties = left.numbered()
            stuck = np.flatnonzero(left.waiters(len(parties)))
            core = left.core(len(parties))[stuck]
            rows = pa.table({"party": pa.array(parties[stuck], pa.int64()), "core": pa.array(core, pa.bool_())})
            pq.write_table(rows, result, filesystem=filesystem)
            yield _answer(shard, len(left.targets), len(stuck))

    return work
