"""One giant snapshot: a wait-for graph of up to some 10^8 targets, reduced in shards, with the same verdicts as one kernel.

The rules:

1. The waits lie in Parquet files (``waiter``, ``needs``, ``among``: integers below ``parties``), a shard is some row groups of
   them; nothing is shuffled.
2. In a round each shard reduces its own waits as far as it can. Parties that also wait in other shards are held until all of
   those have freed them.
3. Shards exchange only one bit a party: whether it is still blocked there. A shard reads the others' bits as they are at that
   moment; older ones would only hold more. So a round's later shards profit from its earlier ones.
4. When the open waits have no more than ``targets_max`` targets, one kernel finishes (at once, if they never had more); and
   so it does after ``rounds_max`` rounds, whatever is left: so no shape of graph (a long chain) makes the rounds grow.
5. A round that frees no party has found the remainder.
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

from detector.spark.giant.shard import Shard, joined, waiting_in
from detector.spark.giant.shard_store import ShardFolder, Shards, shards_of

SHARD_TARGETS = 26_000_000
"""Targets that one worker holds at once, in a round: about 50 bytes each at its peak."""
TARGETS_MAX = 24_000_000
"""Targets that one kernel takes: about 80 bytes each at its peak."""
ROUNDS_MAX = 16
SWEEP_SHARE_MIN = 0.25
"""A shard's round ends with a sweep that frees less than this share of what the first one did: the others' news free more."""
_Source = Callable[[fs.FileSystem, str], Shard]
_Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ANSWER = "shard int, targets long, blocked long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Giant:
    """The answer: ``remainder`` has a row per deadlocked party, ``party`` and ``core``; ``rounds`` and ``shards`` say how."""

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
    waits : a folder (or URI) of Parquet files, rule 1; several rows of one waiter must all end.
    parties : one more than the highest number of a party.
    work : a folder (or URI) that all workers share; the rounds' state is put into a new folder there and removed, the
        remainder stays as a file.
    shard_targets : how many targets a shard has at most: what one Python worker holds at once. Smaller when there are more
        cores.
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
    """The driver's side: starts each round, and adds up two numbers from each shard."""

    def __init__(self, spark: SparkSession, place: ShardFolder, shards: Shards) -> None:
        self._spark = spark
        self._place = place
        self.shards = shards

    def run(self, targets: int, targets_max: int, rounds_max: int, result: str) -> int:
        """Run rounds until a rule ends them; one worker writes the blocked and the core. Returns the number of rounds."""
        if targets <= targets_max:
            self._map(_finishing(self._place, result, _whole(self.shards, self._place.parties), kernel=True), tasks=1)
            return 0
        _, blocked = self._map(_waiting(self._place, self.shards))
        done = False
        for step in range(1, rounds_max + 1):
            targets, now = self._map(_reducing(self._place, len(self.shards), self.shards if step == 1 else None))
            done, blocked = now == blocked, now
            if done or targets <= targets_max:
                break
        self._map(_finishing(self._place, result, _states(len(self.shards)), kernel=not done), tasks=1)
        return step

    def _map(self, work: _Work, tasks: int | None = None) -> tuple[int, int]:
        """One round; the targets that are left in all shards, and the bits that are set in them."""
        count = tasks or len(self.shards)
        frame = self._spark.range(0, count, 1, count).selectExpr("cast(id as int) as shard")
        rows = frame.mapInArrow(work, _ANSWER).collect()
        return sum(row["targets"] for row in rows), sum(row["blocked"] for row in rows)


def numbers_in(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The shards that a task is given."""
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


def _waiting(place: ShardFolder, shards: Shards) -> _Work:
    """The parties that wait in each shard: nothing else of the files is read yet."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, _ = place.open()
        for shard in numbers_in(batches):
            blocked = waiting_in(filesystem, shards[shard], place.parties)
            place.keep(shard, blocked)
            yield _answer(shard, 0, int(np.count_nonzero(blocked)))

    return work


def _reducing(place: ShardFolder, count: int, shards: Shards | None) -> _Work:
    """A round: of ``shards`` as they were written, or else of what the round before left of the ``count`` of them."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in numbers_in(batches):
            state = f"{root}/state-{shard}"
            own = (
                Shard.load(filesystem, state)
                if shards is None
                else Shard.read(filesystem, shards[shard], place.parties).lined()
            )
            own = own.reduced(place.others(shard, count), SWEEP_SHARE_MIN)
            own.save(filesystem, state)
            blocked = own.waiters(place.parties)
            place.keep(shard, blocked)
            yield _answer(shard, len(own.targets), int(np.count_nonzero(blocked)))

    return work


def _states(shards: int) -> _Source:
    """The open waits of all shards after the last round."""

    def read(filesystem: fs.FileSystem, root: str) -> Shard:
        return joined([Shard.load(filesystem, f"{root}/state-{number}") for number in range(shards)])

    return read


def _whole(shards: Shards, parties: int) -> _Source:
    """All waits as they were written."""

    def read(filesystem: fs.FileSystem, _: str) -> Shard:
        return Shard.read(filesystem, [place for shard in shards for place in shard], parties)

    return read


def _finishing(place: ShardFolder, result: str, source: _Source, *, kernel: bool) -> _Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in numbers_in(batches):
            left = source(filesystem, root).lined()
            if kernel:
                left = left.reduced(np.zeros(place.parties, np.bool_))
            left, parties = left.numbered()
            stuck = np.flatnonzero(left.waiters(len(parties)))
            core = left.core(len(parties))[stuck]
            rows = pa.table({"party": pa.array(parties[stuck], pa.int64()), "core": pa.array(core, pa.bool_())})
            pq.write_table(rows, result, filesystem=filesystem)
            yield _answer(shard, len(left.targets), len(stuck))

    return work
