"""A stream's state between two micro-batches, on a disk or in an object store: one small file commits a batch.

Rules:

1. ``commit-EPOCH-BATCH.json`` is written last and in one step. The newest counts: the highest epoch, then the highest batch.
   What it does not name has not been.
2. A stream that starts begins a new epoch: it puts its file there, and gives way if another one has come at the same
   time. Before each commit it looks for a newer epoch, and ends if there is one. So of two streams with one state one goes on.
3. What has been read is part of the commit (files by path and size, or a detector's positions): Spark's own checkpoint is of no
   use to a stream that starts again, and lies in a scratch directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any
from uuid import uuid4

from detector.spark.streaming.interval_set import NONE, Finished
from detector.spark.streaming.published import Published
from detector.spark.streaming.storage import Storage

KEPT = 2
VERSION = 4
"""Of what is remembered; 2 knew archives and late reports, 3 what was read, 4 knows the newest snapshots and what is torn."""
READABLE = (3, VERSION)
RESULTS = ("verdicts", "left_out")
MAKING = "_making-"
Began = tuple[int, float]
"""A snapshot's number and when it began, seconds. An archive without an id, whose numbers may begin anew, has the number 0."""
NEVER: Began = (-1, -inf)
Newest = tuple[Began | None, Began | None]


class ProgressError(ValueError):
    """The state is not this stream's; one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The rows of one bucket's unfinished snapshots.

    ``file``: its name; ``snapshots``: that are not judged; ``given_up``: that are, and wait for late reports; ``due``: by
    archive, when by its watermark something is to be done with them.
    """

    file: str
    snapshots: int
    given_up: int
    rows: int
    due: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After the micro-batch ``batch``.

    Attributes
    ----------
    buckets : snapshots' numbers are taken modulo this.
    making : the folder in which this batch's results were made; published, it is ``batch=N``.
    newest : by archive, the snapshots of the highest numbers seen in reports and in headers; None: none was.
    finished : by archive, the snapshots whose last verdicts have been given; ``closed``: those that never got all reports.
    pending : by bucket.
    positions : by table, up to where a detector's rows have been read.
    logs : the files that say which of an archive's files have been read.
    torn : the archive's files that could not be read. They are tried again when they have changed, and by each start.
    mixed : the snapshots of an archive without an id that two detectors have taken: they are left out.
    began : by bucket, the file that says when the finished snapshots of an archive without an id began.
    verdicts, corrected, late : verdicts written, those of them with a revision, and reports that came after the last.
    """

    batch: int = -1
    buckets: int = 8
    making: str = ""
    newest: Mapping[str, Newest] = field(default_factory=dict)
    finished: Mapping[str, Finished] = field(default_factory=dict)
    closed: Mapping[str, Finished] = field(default_factory=dict)
    pending: Mapping[int, Pending] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    verdicts: int = 0
    corrected: int = 0
    late: int = 0
    mixed: Finished = NONE
    began: Mapping[int, str] = field(default_factory=dict)
    version: int = VERSION

    def watermarks(self) -> dict[str, Began]:
        """By archive, the snapshot up to which reports and headers have come; without any header, that of the reports."""
        return {
            archive: reports if headers is None else min(reports, headers)
            for archive, (reports, headers) in self.newest.items()
            if reports is not None
        }

    def finished_count(self) -> int:
        """How many snapshots are finished."""
        return sum(numbers.count() for numbers in self.finished.values())

    def given_up(self) -> int:
        """Snapshots with a verdict that wait for late reports."""
        return sum(pending.given_up for pending in self.pending.values())

    def waiting(self) -> int:
        """Snapshots without a verdict."""
        return sum(pending.snapshots for pending in self.pending.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One run of a stream over its state (rule 2); ``token`` tells two apart that came at the same time."""

    number: int
    token: str

    @property
    def name(self) -> str:
        """The file that says that it began."""
        return f"epoch-{self.number:06d}-{self.token}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """``state``: the commits, and the rows of unfinished snapshots; ``results``: where the ``RESULTS`` are."""

    state: Storage
    results: Storage

    def last(self) -> Progress:
        """After the newest committed batch; before the first: nothing. Raises :class:`ProgressError`."""
        names = self.state.names()
        found = [name for name in names if name.startswith("commit-")]
        if not found and any(name.startswith("batch-") for name in names):
            raise ProgressError(
                "the state here is from an earlier version of stilltrue: use another folder, or remove this one"
            )
        return self._commit(found[-1]) if found else Progress()

    def begin(self) -> Epoch:
        """Begin a new epoch (rule 2). Raises :class:`ProgressError` when another stream begins one right now."""
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
        """Nobody else need give way to this epoch any more."""
        self.state.remove([epoch.name])

    def check(self, epoch: Epoch) -> None:
        """Raise :class:`ProgressError` when another stream has begun meanwhile."""
        for name in self.state.names():
            if name.startswith("epoch-") and name != epoch.name and int(name.split("-")[1]) >= epoch.number:
                raise ProgressError("another stream has started with the same state: only one continues")

    def commit(self, progress: Progress, epoch: Epoch) -> None:
        """From here on the batch has been: first the state, then its results come to light, then what is old goes."""
        self.check(epoch)
        name = f"commit-{epoch.number:06d}-{progress.batch:012d}.json"
        self.state.write(name, json.dumps(asdict(progress)).encode())
        self.publish(progress)
        self._forget()
        for table in RESULTS:
            self._published.compact(table)

    def publish(self, progress: Progress) -> None:
        """Let readers see the results of a committed batch. Idempotent."""
        if not progress.making:
            return
        for table in RESULTS:
            self._published.put(f"{progress.making}/{table}", table, progress.batch)
        self.state.remove_folder(progress.making)

    @property
    def _published(self) -> Published:
        return Published(results=self.results, state=self.state)

    def resume(self) -> Progress:
        """Do the rest of what was cut short: the results of the last batch come to light, and what was in the making goes."""
        last = self.last()
        self.publish(last)
        for folder in self.state.folders():
            if folder.startswith(MAKING):
                self.state.remove_folder(folder)
        for table in RESULTS:
            self._published.tidy(table)
        return last

    def sizes(self, progress: Progress) -> dict[str, int]:
        """By path, the size with which each of an archive's files was read last."""
        found: dict[str, int] = {}
        for name in progress.logs:
            found |= json.loads(self.state.read(name).to_pybytes())
        return found

    def _commit(self, name: str) -> Progress:
        return _parsed(json.loads(self.state.read(name).to_pybytes()))

    def _forget(self) -> None:
        """Of the state, what the last commits do not name."""
        names = self.state.names()
        commits = [name for name in names if name.startswith("commit-")]
        kept = {name for commit in commits[-KEPT:] for name in _files(self._commit(commit))}
        loose = [name for name in names if name.startswith(("pending-", "read-", "began-")) and name not in kept]
        self.state.remove([*commits[:-KEPT], *loose])


def _files(progress: Progress) -> set[str]:
    return {*progress.logs, *progress.began.values(), *(pending.file for pending in progress.pending.values())}


def _parsed(raw: dict[str, Any]) -> Progress:
    if raw.get("version") not in READABLE:
        raise ProgressError("the state here is from another version of stilltrue: use another folder, or remove this one")
    pending = {int(bucket): Pending(**each) for bucket, each in raw["pending"].items()}
    newest = {archive: (_began(reports), _began(headers)) for archive, (reports, headers) in raw["newest"].items()}
    sets = {name: {archive: _intervals(each) for archive, each in raw[name].items()} for name in ("finished", "closed")}
    alone = {"mixed": _intervals(raw.get("mixed", {"intervals": ()})), "began": _by_bucket(raw.get("began", {}))}
    names = {"logs": tuple(raw["logs"]), "torn": tuple(raw.get("torn", ()))}
    return Progress(**raw | {"pending": pending, "newest": newest, "version": VERSION} | sets | alone | names)


def _began(raw: Sequence[float] | float | None) -> Began | None:
    """Version 3 knew no numbers: any snapshot is newer."""
    if raw is None:
        return None
    return (-1, raw) if isinstance(raw, float | int) else (int(raw[0]), raw[1])


def _by_bucket(raw: Mapping[str, str]) -> dict[int, str]:
    return {int(bucket): name for bucket, name in raw.items()}


def _intervals(raw: dict[str, Any]) -> Finished:
    return Finished(intervals=tuple((low, high) for low, high in raw["intervals"]))
