"""A stream's state between micro-batches, on a disk or in an object store: one small file commits a batch.

Rules:

1. ``commit-EPOCH-BATCH.json`` is written last and atomically. The newest one counts: highest epoch, then highest batch.
   Whatever it does not name did not happen.
2. A stream that starts begins a new epoch: it writes an epoch file, and withdraws if another stream has done so at the same
   time. Before each commit it checks for a newer epoch, and ends if there is one. So of two streams with the same state, one
   continues.
3. A commit includes what has been read (files by path and size, or a detector's positions). Spark's own checkpoint is in a
   temporary directory and is not used on restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq

from detector.spark.streaming.interval_set import EMPTY, IntervalSet
from detector.spark.streaming.published import Published
from detector.spark.streaming.storage import Storage

KEPT = 2
VERSION = 5
"""Version of the state: 2 added archives and late reports, 3 what was read, 4 newest snapshots, torn files, 5 predicates."""
READABLE = (3, 4, VERSION)
RESULTS = ("verdicts", "left_out")
MAKING = "_making-"
Began = tuple[int, float]
"""A snapshot's number and start time (seconds). The number is 0 in archives without an id, whose numbering may restart."""
NEVER: Began = (-1, -inf)
Newest = tuple[Began | None, Began | None]


class ProgressError(ValueError):
    """The state cannot be used by this stream; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The rows of one bucket's unfinished snapshots.

    ``file``: the name of the file with the rows; ``snapshots``: number of unjudged snapshots; ``given_up``: number of judged
    ones that wait for late reports; ``due``: the watermark at which the next of them is to be handled, by archive.
    """

    file: str
    snapshots: int
    given_up: int
    rows: int
    due: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state after the micro-batch ``batch``.

    Attributes
    ----------
    predicates : those evaluated by the newest batch; empty in a state from before version 5.
    buckets : the number of buckets; a snapshot's bucket is its number modulo this.
    making : the folder with this batch's results before they are published as ``batch=N``.
    newest : the snapshots with the highest numbers in reports and in headers (None if there was none), by archive.
    finished : the snapshots that will not be judged again, by archive; ``closed``: those that never got all their reports.
    pending : the rows of unfinished snapshots, by bucket.
    positions : the position up to which a detector's rows have been read, by table.
    logs : the files that list which of an archive's files have been read.
    torn : the archive's files that could not be read. They are retried when they change, and on each start.
    mixed : snapshots that are left out because two detectors without an id used the same number.
    began : the file with the start times of the finished snapshots of an archive without an id, by bucket.
    verdicts, corrected, late : numbers of verdicts written, of revised ones, and of reports that arrived too late.
    """

    batch: int = -1
    predicates: tuple[str, ...] = ()
    buckets: int = 8
    making: str = ""
    newest: Mapping[str, Newest] = field(default_factory=dict)
    finished: Mapping[str, IntervalSet] = field(default_factory=dict)
    closed: Mapping[str, IntervalSet] = field(default_factory=dict)
    pending: Mapping[int, Pending] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    verdicts: int = 0
    corrected: int = 0
    late: int = 0
    mixed: IntervalSet = EMPTY
    began: Mapping[int, str] = field(default_factory=dict)
    version: int = VERSION

    def watermarks(self) -> dict[str, Began]:
        """Return the snapshot up to which reports and headers have arrived (or only reports, without headers), by archive."""
        return {
            archive: reports if headers is None else min(reports, headers)
            for archive, (reports, headers) in self.newest.items()
            if reports is not None
        }

    def finished_count(self) -> int:
        """Return the number of finished snapshots."""
        return sum(numbers.count() for numbers in self.finished.values())

    def given_up(self) -> int:
        """Return the number of snapshots with a verdict that wait for late reports."""
        return sum(pending.given_up for pending in self.pending.values())

    def waiting(self) -> int:
        """Return the number of snapshots without a verdict."""
        return sum(pending.snapshots for pending in self.pending.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One run of a stream (rule 2); ``token`` distinguishes two that start at the same time."""

    number: int
    token: str

    @property
    def name(self) -> str:
        """The name of the epoch file."""
        return f"epoch-{self.number:06d}-{self.token}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A stream's ``state`` (its commits, and the rows of unfinished snapshots), and its ``results``."""

    state: Storage
    results: Storage

    def last(self) -> Progress:
        """Return the state after the newest committed batch; an empty one if there is none. Raises :class:`ProgressError`."""
        names = self.state.names()
        found = [name for name in names if name.startswith("commit-")]
        if not found and any(name.startswith("batch-") for name in names):
            raise ProgressError("this state is from an earlier version of stilltrue: use another folder, or remove this one")
        return self._commit(found[-1]) if found else Progress()

    def last_with_results(self) -> Progress:
        """As :meth:`last`, with the predicates of an older state taken from the newest verdicts.

        Also raises :class:`ProgressError` if verdicts were published and are not there, or are there and belong to another
        state, since batches of equal numbers would replace them.
        """
        last = self.last()
        published = [path for path in self.results.sizes("verdicts") if path.endswith(".parquet")]
        if published and last.batch < 0:
            raise ProgressError(
                f"{self.results.location}/verdicts has the results of a stream whose state is not in {self.state.location}: "
                "name its --state, or use another --out"
            )
        if last.verdicts and not published and last.making not in self.state.folders():
            raise ProgressError(
                f"{self.results.location}/verdicts is gone, and a stream does not judge its {last.finished_count()} finished "
                f"snapshots again: use {self.another}, or 'stilltrue analyze'"
            )
        if last.predicates or not published:
            return last
        newest = self.results.read(max(published, key=lambda path: int(path.partition("batch=")[2].partition("/")[0] or 0)))
        return replace(last, predicates=tuple(pq.read_table(newest, columns=["predicate"])["predicate"].unique().to_pylist()))

    @property
    def another(self) -> str:
        """The options to change for a stream that begins anew."""
        return "another --out" if self.state.location == self.results.location else "another --state and --out"

    def begin(self) -> Epoch:
        """Begin a new epoch (rule 2). Raises :class:`ProgressError` if another stream begins one at the same time."""
        names = self.state.names()
        numbers = [int(name.split("-")[1]) for name in names if name.startswith(("epoch-", "commit-"))]
        epoch = Epoch(number=max(numbers, default=0) + 1, token=uuid4().hex[:8])
        self.state.write(epoch.name, b"{}\n")
        try:
            self.check(epoch)
        except ProgressError:
            self.state.remove([epoch.name])
            raise
        self.state.remove(name for name in names if name.startswith("epoch-"))
        return epoch

    def end(self, epoch: Epoch) -> None:
        """End the epoch, so that other streams may start."""
        self.state.remove([epoch.name])

    def check(self, epoch: Epoch) -> None:
        """Raise :class:`ProgressError` if another stream has started since."""
        for name in self.state.names():
            if name.startswith("epoch-") and name != epoch.name and int(name.split("-")[1]) >= epoch.number:
                raise ProgressError("another stream has started with the same state: only one continues")

    def commit(self, progress: Progress, epoch: Epoch) -> None:
        """Commit a batch: write the state, publish the results, then remove old files."""
        self.check(epoch)
        name = f"commit-{epoch.number:06d}-{progress.batch:012d}.json"
        self.state.write(name, json.dumps(asdict(progress)).encode())
        self.publish(progress)
        self._forget()
        for table in RESULTS:
            self._published.compact(table)

    def publish(self, progress: Progress) -> None:
        """Publish the results of a committed batch. Idempotent."""
        if not progress.making:
            return
        for table in RESULTS:
            self._published.put(f"{progress.making}/{table}", table, progress.batch)
        self.state.remove_folder(progress.making)

    @property
    def _published(self) -> Published:
        return Published(results=self.results, state=self.state)

    def resume(self) -> Progress:
        """Complete an interrupted commit: publish the last batch's results, and remove those of uncommitted batches."""
        last = self.last()
        self.publish(last)
        for folder in self.state.folders():
            if folder.startswith(MAKING):
                self.state.remove_folder(folder)
        for table in RESULTS:
            self._published.tidy(table)
        return last

    def sizes(self, progress: Progress) -> dict[str, int]:
        """Return the size of each of an archive's files when it was last read, by path."""
        found: dict[str, int] = {}
        for name in progress.logs:
            found |= json.loads(self.state.read(name).to_pybytes())
        return found

    def _commit(self, name: str) -> Progress:
        return _parsed(json.loads(self.state.read(name).to_pybytes()))

    def _forget(self) -> None:
        """Remove files of the state that the last commits do not name."""
        names = self.state.names()
        commits = [name for name in names if name.startswith("commit-")]
        kept = {name for commit in commits[-KEPT:] for name in _files(self._commit(commit))}
        loose = [name for name in names if name.startswith(("pending-", "read-", "began-")) and name not in kept]
        self.state.remove([*commits[:-KEPT], *loose])


def _files(progress: Progress) -> set[str]:
    return {*progress.logs, *progress.began.values(), *(pending.file for pending in progress.pending.values())}


def _parsed(raw: dict[str, Any]) -> Progress:
    if raw.get("version") not in READABLE:
        raise ProgressError("this state is from another version of stilltrue: use another folder, or remove this one")
    pending = {int(bucket): Pending(**each) for bucket, each in raw["pending"].items()}
    newest = {archive: (_began(reports), _began(headers)) for archive, (reports, headers) in raw["newest"].items()}
    sets = {name: {archive: _intervals(each) for archive, each in raw[name].items()} for name in ("finished", "closed")}
    alone = {"mixed": _intervals(raw.get("mixed", {"intervals": ()})), "began": _by_bucket(raw.get("began", {}))}
    names = {name: tuple(raw.get(name, ())) for name in ("logs", "torn", "predicates")}
    return Progress(**raw | {"pending": pending, "newest": newest, "version": VERSION} | sets | alone | names)


def _began(raw: Sequence[float] | float | None) -> Began | None:
    """Parse a ``Began``; version 3 has only the time, so any snapshot is newer."""
    if raw is None:
        return None
    return (-1, raw) if isinstance(raw, float | int) else (int(raw[0]), raw[1])


def _by_bucket(raw: Mapping[str, str]) -> dict[int, str]:
    return {int(bucket): name for bucket, name in raw.items()}


def _intervals(raw: dict[str, Any]) -> IntervalSet:
    return IntervalSet(intervals=tuple((low, high) for low, high in raw["intervals"]))
