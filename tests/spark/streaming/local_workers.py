"""A stream's micro-batches without Spark: its workers run here, one after the other, over an archive's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from detector.archive.files import ArchiveFiles
from detector.spark.source.new_files_source import ALL_DAYS_SECONDS, FileLog, Lister
from detector.spark.streaming.micro_batch import MicroBatches
from detector.spark.streaming.packing import PACKED, PIECES, Worker
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Progress


@dataclass(frozen=True, slots=True)
class LocalWorkers:
    """As :class:`detector.spark.streaming.micro_batch.Workers`, over some files."""

    files: Sequence[dict[str, object]]

    def packed(self, pack: Worker, assemble: Worker, buckets: int) -> Sequence[str]:
        packed = pack([pa.RecordBatch.from_pylist(list(self.files), schema=PIECES)])
        return _told(assemble(packed))

    def waiting(self, assemble: Worker, buckets: Sequence[int]) -> Sequence[str]:
        rows = [{"bucket": bucket} for bucket in buckets]
        return _told(assemble([pa.RecordBatch.from_pylist(rows, schema=PACKED)]))


def _told(batches: object) -> Sequence[str]:
    assert hasattr(batches, "__iter__")
    return [row["summary"] for batch in batches for row in batch.to_pylist()]


class StreamHere:
    """A stream that begins anew where the plan's state says, and looks for new files when it is told to."""

    def __init__(self, location: str, plan: StreamPlan) -> None:
        self._folder = plan.folder
        self._batches = MicroBatches(plan, location, self._folder.begin())
        self._log = FileLog(self._folder.sizes(self._folder.last()))
        self._lister = Lister(ArchiveFiles(location), self._log, lambda: self._folder.last().torn)
        self._now = 0.0

    def run(self, files_per_batch: int) -> Progress:
        """Read what the archive has that was not read, all days of it."""
        self._now += ALL_DAYS_SECONDS
        fresh = self._lister.new(self._now)
        for low in range(0, len(fresh), files_per_batch):
            some = fresh[low : low + files_per_batch]
            self._log.add(self._folder.last().batch + 1, {each.path: each.bytes for each in some})
            self._batches.run(LocalWorkers([{"table": each.table, "path": each.path, "bytes": each.bytes} for each in some]))
        return self._folder.last()


def streamed_here(location: str, plan: StreamPlan, files_per_batch: int) -> Progress:
    """Begin, read what the archive has that was not read, and end."""
    return StreamHere(location, plan).run(files_per_batch)
