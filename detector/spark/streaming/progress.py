"""A stream's state between two micro-batches: one small file, whose rename into place commits the batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from detector.ops.atomic_file import write_atomically
from detector.spark.streaming.interval_set import Finished
from detector.spark.streaming.published import Published

KEPT = 2
VERSION = 2
"""Of what is remembered; 2 knows archives and late reports."""
RESULTS = ("verdicts", "left_out")
Newest = tuple[float | None, float | None]


class ProgressError(ValueError):
    """The directory belongs to another stream; one line that says what to do."""


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
    query : the id of the query, as its checkpoint says.
    buckets : snapshots' numbers are taken modulo this.
    making : the folder in which this batch's results were made; published, it is ``batch=N``.
    newest : by archive, the newest beginnings seen in reports and in headers, seconds; None: none was.
    finished : by archive, the snapshots whose last verdicts have been given; ``closed``: those that never got all reports.
    pending : by bucket.
    verdicts, corrected, late : verdicts written, those of them with a revision, and reports that came after the last.
    """

    batch: int = -1
    query: str = ""
    buckets: int = 8
    making: str = ""
    newest: Mapping[str, Newest] = field(default_factory=dict)
    finished: Mapping[str, Finished] = field(default_factory=dict)
    closed: Mapping[str, Finished] = field(default_factory=dict)
    pending: Mapping[int, Pending] = field(default_factory=dict)
    verdicts: int = 0
    corrected: int = 0
    late: int = 0
    version: int = VERSION

    def watermarks(self) -> dict[str, float]:
        """By archive, the beginning up to which reports and headers have come; without any header, that of the reports."""
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
class Folder:
    """``state``: the commits, and the rows of unfinished snapshots; ``results``: a directory or URI with the ``RESULTS``."""

    state: Path
    results: Path | str

    def last(self) -> Progress:
        """After the newest committed batch; before the first: nothing. Raises :class:`ProgressError`."""
        found = sorted(self.state.glob("batch-*.json"))
        return _parsed(json.loads(found[-1].read_text())) if found else Progress()

    def made(self, progress: Progress) -> Path:
        """The directory in which a batch's results are written."""
        return self.state / progress.making

    def commit(self, progress: Progress) -> None:
        """From here on the batch has been: first the state, then its results come to light, then what is old goes."""
        write_atomically(self.state / f"batch-{progress.batch:012d}.json", json.dumps(asdict(progress)).encode())
        self.publish(progress)
        self._forget(progress)
        for table in RESULTS:
            self._published.compact(table)

    def publish(self, progress: Progress) -> None:
        """Let readers see the results of a committed batch. Idempotent."""
        if not progress.making or not self.made(progress).exists():
            return
        for table in RESULTS:
            made = self.made(progress) / table
            if made.exists():
                self._published.put(made, table, progress.batch)
        shutil.rmtree(self.made(progress), ignore_errors=True)

    @property
    def _published(self) -> Published:
        return Published(location=str(self.results), state=self.state)

    def clear(self) -> None:
        """Remove results that were in the making when a batch was cut short."""
        for made in self.state.glob("_making-*"):
            shutil.rmtree(made, ignore_errors=True)

    def _forget(self, progress: Progress) -> None:
        commits = sorted(self.state.glob("batch-*.json"))
        kept = {pending.file for path in commits[-KEPT:] for pending in _parsed(json.loads(path.read_text())).pending.values()}
        for path in commits[:-KEPT]:
            path.unlink(missing_ok=True)
        for path in self.state.glob("pending-*.arrow"):
            if path.name not in kept and f"-{progress.making}-" not in path.name:
                path.unlink(missing_ok=True)


def continued(last: Progress, *, query: str, buckets: int) -> Progress:
    """``last`` as the state before the next batch of the query. Raises :class:`ProgressError`."""
    if last.batch < 0:
        return replace(last, query=query, buckets=buckets)
    if last.query != query:
        raise ProgressError("the results and state here belong to another checkpoint: name another folder, or remove this one")
    return last


def _parsed(raw: dict[str, Any]) -> Progress:
    if raw.get("version") != VERSION:
        raise ProgressError("the state here is from an earlier version of stilltrue: name another folder, or remove this one")
    pending = {int(bucket): Pending(**each) for bucket, each in raw["pending"].items()}
    newest = {archive: (reports, headers) for archive, (reports, headers) in raw["newest"].items()}
    sets = {name: {archive: _intervals(each) for archive, each in raw[name].items()} for name in ("finished", "closed")}
    return Progress(**raw | {"pending": pending, "newest": newest} | sets)


def _intervals(raw: dict[str, Any]) -> Finished:
    return Finished(intervals=tuple((low, high) for low, high in raw["intervals"]))
