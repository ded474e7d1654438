"""A stream source that lists each new file of an archive once, in the order of day and name, not of timestamps.

The stream's state (:mod:`detector.spark.streaming.progress`), which is read when a query starts, has the files read so far. A
file whose size has changed since (it was being copied) is read again. So is a damaged file, by the next query or when it has
been modified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from detector.archive.files import ArchiveFiles, snapshots_of_name
from detector.spark.streaming.packing import PIECES
from detector.spark.streaming.plan import StreamPlan

NAME = "stilltrue-archive"
TABLES = ("snapshots", "reports")
POLL_SECONDS = 1.0
POLL_SECONDS_MAX = 10.0
"""The first and the longest pause of an idle stream between listings of the newest days."""
ALL_DAYS_SECONDS = 60.0
"""Interval between listings of all days: files may be added to older days at any time."""
NEW_DAYS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file: its table, day, path, size, and time of modification (nanoseconds, by the storage's clock)."""

    table: str
    day: str
    path: str
    bytes: int
    modified: int

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: by day, then by the first snapshot in the name, headers before their reports."""
        name = self.path.rpartition("/")[2]
        numbers = snapshots_of_name(name)
        return (self.day, numbers is None, numbers or (0, 0), TABLES.index(self.table), name)


class FileLog:
    """The files of each micro-batch of a query, and those read before."""

    def __init__(self, seen: Mapping[str, int]) -> None:
        """``seen``: the size of each file when it was last read, by path."""
        self._sizes = dict(seen)
        self._batches: dict[int, tuple[str, ...]] = {}

    def sizes(self) -> Mapping[str, int]:
        """Return the size of each file when it was last read, by path."""
        return self._sizes

    def __contains__(self, batch: int) -> bool:
        return batch in self._batches

    def files(self, batch: int) -> list[tuple[str, int]]:
        """Return the paths and sizes of a micro-batch's files."""
        return [(path, self._sizes[path]) for path in self._batches[batch]]

    def add(self, batch: int, files: Mapping[str, int]) -> None:
        """Set the files of a micro-batch."""
        self._batches[batch] = tuple(files)
        self._sizes |= files

    def forget(self, batch: int, present: set[str]) -> None:
        """Forget batches up to ``batch``, which will not run again, and files that are not ``present``."""
        self._batches = {at: files for at, files in self._batches.items() if at > batch}
        if len(self._sizes) > 2 * len(present):
            self._sizes = {path: size for path, size in self._sizes.items() if path in present}


class Lister:
    """Lists the files that have not been read yet, less often while there are none."""

    def __init__(self, store: ArchiveFiles, log: FileLog, torn: Callable[[], Collection[str]] = tuple) -> None:
        """``torn`` returns the files that could not be read so far."""
        self.present: set[str] = set()
        self._store, self._log, self._torn = store, log, torn
        self._modified: dict[str, int] = {}
        self._pause = POLL_SECONDS
        self._listed_at = self._all_listed_at = -ALL_DAYS_SECONDS

    def new(self, now: float) -> list[Listed]:
        """List new files in order at ``now`` (seconds, monotonic); empty if it is too soon to list them again."""
        all_days = now - self._all_listed_at >= ALL_DAYS_SECONDS
        if not all_days and now - self._listed_at < self._pause:
            return []
        self._listed_at = now
        self._all_listed_at = now if all_days else self._all_listed_at
        found = [each for table in TABLES for each in self._table(table, all_days=all_days)]
        if all_days:
            self.present = {each.path for each in found}
        sizes = self._log.sizes()
        fresh = [each for each in found if sizes.get(each.path) != each.bytes]
        written = [each for each in found if self._modified.get(each.path, each.modified) != each.modified]
        torn = set(self._torn()) if written else set()
        fresh = sorted({*fresh, *(each for each in written if each.path in torn)}, key=lambda each: each.order)
        self._modified |= {each.path: each.modified for each in fresh}
        self._pause = POLL_SECONDS if fresh else min(2 * self._pause, POLL_SECONDS_MAX)
        return fresh

    def _table(self, table: str, *, all_days: bool) -> Iterator[Listed]:
        days = self._store.days(table)
        for day in days if all_days else days[-NEW_DAYS:]:
            for entry in self._store.entries(table, day):
                yield Listed(table=table, day=day, path=entry.path, bytes=entry.size, modified=entry.mtime_ns or 0)


@dataclass
class Part(InputPartition):
    """Files that one task reads."""

    files: tuple[tuple[str, str, int], ...]
    """Table, path and size of each."""


class ArchiveFilesSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue-archive``; each row names a file."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """The schema :data:`~detector.spark.streaming.packing.PIECES`."""
        return "table string, path string, bytes bigint, content binary, until bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        return _Reader(self.options)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is ``{"batch": N}``: the files of N micro-batches of this query have been read.

    Options: ``location`` of the archive, ``out`` and ``state`` of the plan, ``bytes_per_batch_max``, ``tasks``.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._bytes_max, self._tasks = int(options["bytes_per_batch_max"]), int(options["tasks"])
        folder = StreamPlan(out=options["out"], state=options["state"]).folder
        self._log = FileLog(folder.sizes(folder.last()))
        self._lister = Lister(ArchiveFiles(options["location"]), self._log, self._torn)
        self._folder = folder
        self._waiting: list[Listed] = []
        self._no_more = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._waiting = self._lister.new(time.monotonic())
        self._no_more = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        batch = int(start["batch"]) + 1
        if batch not in self._log:
            if not self._waiting and not self._no_more:
                self._waiting = self._lister.new(time.monotonic())
            if not self._waiting:
                return start
            self._log.add(batch, dict(self._next_files()))
        return {"batch": batch}

    def _torn(self) -> Collection[str]:
        try:
            return self._folder.last().torn
        except FileNotFoundError:  # a newer commit has just replaced it; the next listing will find that one
            return ()

    def _next_files(self) -> Iterator[tuple[str, int]]:
        """Yield as many of the waiting files as fit into one batch, at least one."""
        held = 0
        while self._waiting and (not held or held + self._waiting[0].bytes <= self._bytes_max):
            each = self._waiting.pop(0)
            held += max(each.bytes, 1)
            yield each.path, each.bytes

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found = [each for batch in range(start["batch"] + 1, end["batch"] + 1) for each in self._log.files(batch)]
        files = [(path.split("/")[-3], path, size) for path, size in found]
        return [Part(tuple(files[at :: self._tasks])) for at in range(min(self._tasks, len(files)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        rows = [{"table": table, "path": path, "bytes": size} for table, path, size in partition.files]
        yield pa.RecordBatch.from_pylist(rows, schema=PIECES)

    def commit(self, end: dict[str, Any]) -> None:
        self._log.forget(int(end["batch"]), self._lister.present)
