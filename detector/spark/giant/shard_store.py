"""Stores a giant graph's waits and the state of its rounds in files that all workers can read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from detector.archive.filesystem import open_filesystem
from detector.graph.columns import Bools
from detector.spark.giant.shard import atomic_output

Shards = list[list[tuple[str, int]]]
"""The row groups (path, number) of each shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFolder:
    """A folder (or URI) that all workers can read and write; each shard has ``parties`` bits there."""

    folder: str
    parties: int

    def open(self) -> tuple[fs.FileSystem, str]:
        """Return the filesystem, and the folder's path in it."""
        if "://" in self.folder:
            filesystem, root = open_filesystem(self.folder)
            return filesystem, root
        return fs.LocalFileSystem(), self.folder

    def write_bits(self, shard: int, flags: Bools) -> None:
        """Write one bit per party for ``shard``, atomically."""
        filesystem, root = self.open()
        with atomic_output(filesystem, f"{root}/bits-{shard}") as sink:
            sink.write(np.packbits(flags).tobytes())

    def others(self, shard: int, count: int) -> Bools:
        """Return (P,) whether any of the ``count`` shards except ``shard`` has the party's bit set."""
        filesystem, root = self.open()
        packed: NDArray[np.uint8] = np.zeros((self.parties + 7) // 8, np.uint8)
        for other in range(count):
            if other != shard:
                with filesystem.open_input_stream(f"{root}/bits-{other}") as source:
                    packed |= np.frombuffer(source.read(), np.uint8)
        return np.unpackbits(packed, count=self.parties).view(np.bool_)


def shards_of(waits: str, shard_targets: int, cores: int = 1) -> tuple[Shards, int]:
    """Combine row groups to shards; also return the total number of targets.

    Parameters
    ----------
    waits : a folder (or URI) of Parquet files.
    shard_targets : most targets per shard; a row group with more is a shard of its own.
    cores : the number of shards is about a multiple of this, if there are enough row groups.
    """
    filesystem, root = ShardFolder(folder=waits, parties=0).open()
    groups: list[tuple[str, int, int]] = []
    for entry in sorted(filesystem.get_file_info(fs.FileSelector(root)), key=lambda entry: entry.path):
        if not entry.path.endswith(".parquet"):
            continue
        with filesystem.open_input_file(entry.path) as source:
            footer = pq.read_metadata(source)
        groups += [(entry.path, group, _targets(footer.row_group(group))) for group in range(footer.num_row_groups)]
    total = sum(targets for *_, targets in groups)
    even = cores * max(1, math.ceil(total / (cores * shard_targets)))
    size_max = min(shard_targets, math.ceil(total / even) + max((targets for *_, targets in groups), default=0) // 2)
    shards: Shards = [[]]
    size = 0
    for path, group, targets in groups:
        if size and size + targets > size_max:
            shards.append([])
            size = 0
        shards[-1].append((path, group))
        size += targets
    return shards, total


def _targets(group: pq.RowGroupMetaData) -> int:
    columns = (group.column(at) for at in range(group.num_columns))
    return sum(column.num_values for column in columns if column.path_in_schema.split(".")[0] == "among")
