"""One giant snapshot: a wait graph of up to some 10^8 targets, reduced in shards, with verdicts as if by one kernel.

The rules:

1. The waits lie in Parquet files (``waiter``, ``needs``, ``among``: integers below ``parties``), a shard is some row groups of
   them; nothing is shuffled.
2. In a round each shard reduces its own waits as far as it can tell. Whom it cannot speak for is held: whoever waits in
   another shard too, and whoever waits in another shard only, until all shards together have freed them.
3. Between rounds one bit a party goes round: who is blocked in some shard. A party that is blocked in none is free.
4. When the open waits have no more than ``targets_max`` targets, one kernel finishes; and so it does after ``rounds_max``
   rounds, whatever is left: so no shape of graph (a long chain) makes the number of rounds grow.
5. A round that frees nobody has found the remainder.
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

from detector.graph.columns import Bools
from detector.spark.shard import Shard, joined, load_bits, save_bits

SHARD_TARGETS = 8_000_000
TARGETS_MAX = 12_000_000
"""Targets that one kernel takes: about 60 bytes each at its peak."""
ROUNDS_MAX = 8
_Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ANSWER = "shard int, targets long, waits long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Giant:
    """The answer: ``remainder`` has a row per deadlocked party, ``party`` and ``core``; ``rounds`` and ``shards`` say how."""

    holds: bool
    blocked: int
    rounds: int
    shards: int
    remainder: DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the rounds' state lies; every worker must be able to read and write there."""

    folder: str
    parties: int

    def open(self) -> tuple[fs.FileSystem, str]:
        if "://" in self.folder:
            filesystem, root = fs.FileSystem.from_uri(self.folder)
            return filesystem, root
        return fs.LocalFileSystem(), self.folder

    def bits(self, name: str) -> Bools:
        filesystem, root = self.open()
        return load_bits(filesystem, f"{root}/{name}", self.parties)

    def keep(self, name: str, flags: Bools) -> None:
        filesystem, root = self.open()
        save_bits(filesystem, f"{root}/{name}", flags)


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
    shard_targets : about how many targets a shard has: what one Python worker holds at once.
    """
    filesystem, root = _Place(folder=work, parties=parties).open()
    folder = f"{root}/giant-{uuid.uuid4().hex[:8]}"
    filesystem.create_dir(folder, recursive=True)
    scheme = work.split("://", 1)[0] + "://" if "://" in work else ""
    rounds = _Rounds(spark, _Place(folder=scheme + folder, parties=parties), _shards(waits, shard_targets))
    result = f"{root}/remainder-{PurePosixPath(folder).name}.parquet"
    try:
        done, steps = rounds.run(targets_max, rounds_max)
        rounds.finish(result, kernel=not done)
    finally:
        filesystem.delete_dir(folder)
    remainder = spark.read.schema("party long, core boolean").parquet((scheme or "file://") + result)
    blocked = remainder.count()
    return Giant(holds=blocked > 0, blocked=blocked, rounds=steps, shards=len(rounds.shards), remainder=remainder)


class _Rounds:
    """The driver's side: starts each round, and puts the shards' bits together one after the other."""

    def __init__(self, spark: SparkSession, place: _Place, shards: list[list[tuple[str, int]]]) -> None:
        self._spark = spark
        self._place = place
        self.shards = shards

    def run(self, targets_max: int, rounds_max: int) -> tuple[bool, int]:
        """Rounds until a rule ends them; whether the remainder is found, and how many there were."""
        targets = self._map(_reading(self._place, self.shards))
        blocked = self._meet()
        for step in range(1, rounds_max + 1):
            if targets <= targets_max:
                return False, step - 1
            targets = self._map(_reducing(self._place))
            now = self._meet()
            if np.array_equal(now, blocked):
                return True, step
            blocked = now
        return False, rounds_max

    def finish(self, result: str, *, kernel: bool) -> None:
        """Write who is blocked, and who of them is core: found in one worker, over the parties that are left."""
        self._map(_finishing(self._place, result, len(self.shards), kernel=kernel), tasks=1)

    def _map(self, work: _Work, tasks: int | None = None) -> int:
        count = tasks or len(self.shards)
        frame = self._spark.range(0, count, 1, count).selectExpr("cast(id as int) as shard")
        return sum(row["targets"] for row in frame.mapInArrow(work, _ANSWER).collect())

    def _meet(self) -> Bools:
        """Rule 3: who is blocked in some shard, and who in several; kept where the workers find it."""
        blocked, several = np.zeros(self._place.parties, np.bool_), np.zeros(self._place.parties, np.bool_)
        for shard in range(len(self.shards)):
            own = self._place.bits(f"blocked-{shard}")
            several |= blocked & own
            blocked |= own
        self._place.keep("blocked", blocked)
        self._place.keep("several", several)
        return blocked


def _shards(waits: str, shard_targets: int) -> list[list[tuple[str, int]]]:
    """Row groups put together to shards of about ``shard_targets`` targets."""
    filesystem, root = _Place(folder=waits, parties=0).open()
    shards: list[list[tuple[str, int]]] = [[]]
    size = 0
    for entry in sorted(filesystem.get_file_info(fs.FileSelector(root)), key=lambda entry: entry.path):
        if not entry.path.endswith(".parquet"):
            continue
        with filesystem.open_input_file(entry.path) as source:
            footer = pq.read_metadata(source)
        for group in range(footer.num_row_groups):
            targets = _targets(footer.row_group(group))
            if size and size + targets > shard_targets:
                shards.append([])
                size = 0
            shards[-1].append((entry.path, group))
            size += targets
    return shards


def _targets(group: pq.RowGroupMetaData) -> int:
    columns = (group.column(at) for at in range(group.num_columns))
    return sum(column.num_values for column in columns if column.path_in_schema.split(".")[0] == "among")


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("shard").to_pylist()


def _answer(shard: int, state: Shard) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "shard": pa.array([shard], pa.int32()),
            "targets": pa.array([len(state.targets)], pa.int64()),
            "waits": pa.array([len(state.waiter)], pa.int64()),
        }
    )


def _reading(place: _Place, shards: list[list[tuple[str, int]]]) -> _Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in _numbers(batches):
            state = joined([Shard.read(filesystem, path, [group]) for path, group in shards[shard]])
            state.save(filesystem, f"{root}/state-{shard}")
            place.keep(f"blocked-{shard}", state.waiters(place.parties))
            yield _answer(shard, state)

    return work


def _reducing(place: _Place) -> _Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in _numbers(batches):
            held = place.bits("blocked")
            held &= place.bits("several") | ~place.bits(f"blocked-{shard}")  # rule 2
            state = Shard.load(filesystem, f"{root}/state-{shard}").reduced(held)
            state.save(filesystem, f"{root}/state-{shard}")
            place.keep(f"blocked-{shard}", state.waiters(place.parties))
            yield _answer(shard, state)

    return work


def _finishing(place: _Place, result: str, shards: int, *, kernel: bool) -> _Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = place.open()
        for shard in _numbers(batches):
            whole = joined([Shard.load(filesystem, f"{root}/state-{number}") for number in range(shards)])
            left, parties = whole.numbered()
            if kernel:
                left = left.reduced(np.zeros(len(parties), np.bool_))
            stuck = np.flatnonzero(left.waiters(len(parties)))
            core = left.core(len(parties))[stuck]
            rows = pa.table({"party": pa.array(parties[stuck], pa.int64()), "core": pa.array(core, pa.bool_())})
            pq.write_table(rows, result, filesystem=filesystem)
            yield _answer(shard, left)

    return work
