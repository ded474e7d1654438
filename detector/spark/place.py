"""Where a giant graph's waits and the state of its rounds lie: files that every worker can read and write."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq
from pyarrow import fs

from detector.graph.columns import Bools
from detector.spark.shard import load_bits, save_bits

Shards = list[list[tuple[str, int]]]
"""The row groups (path, number) of each shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder (or URI) that every worker must be able to read and write; ``parties``: how many bits a kept row has."""

    folder: str
    parties: int

    def open(self) -> tuple[fs.FileSystem, str]:
        """The filesystem, and the folder's path there."""
        if "://" in self.folder:
            filesystem, root = fs.FileSystem.from_uri(self.folder)
            return filesystem, root
        return fs.LocalFileSystem(), self.folder

    def bits(self, name: str) -> Bools:
        """(P,) what :meth:`keep` kept."""
        filesystem, root = self.open()
        return load_bits(filesystem, f"{root}/{name}", self.parties)

    def keep(self, name: str, flags: Bools) -> None:
        """Keep one bit a party under ``name``."""
        filesystem, root = self.open()
        save_bits(filesystem, f"{root}/{name}", flags)


def shards_of(waits: str, shard_targets: int) -> tuple[Shards, int]:
    """Row groups put together to shards of about ``shard_targets`` targets; and how many there are in all."""
    filesystem, root = Place(folder=waits, parties=0).open()
    shards: Shards = [[]]
    size = total = 0
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
            total += targets
    return shards, total


def _targets(group: pq.RowGroupMetaData) -> int:
    columns = (group.column(at) for at in range(group.num_columns))
    return sum(column.num_values for column in columns if column.path_in_schema.split(".")[0] == "among")
