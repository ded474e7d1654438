"""What a stream remembers between two micro-batches: one small file, renamed into place, which is the batch's commit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from detector.spark.streaming.interval_set import Finished

KEPT = 2


class ProgressError(ValueError):
    """What lies there is of another stream; one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The rows of one bucket's unfinished snapshots: the file's name, how many, and the oldest beginning (seconds)."""

    file: str
    snapshots: int
    rows: int
    oldest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After the micro-batch ``batch``.

    Attributes
    ----------
    query : the id of the query, as its checkpoint says.
    buckets : snapshots' numbers are taken modulo this.
    making : the folder in which this batch's results were made; published, it is ``batch=N``.
    reports_newest, headers_newest : the newest beginnings seen, seconds; None: none was.
    finished : the snapshots whose verdicts have been given.
    pending : by bucket.
    """

    batch: int = -1
    query: str = ""
    buckets: int = 8
    making: str = ""
    reports_newest: float | None = None
    headers_newest: float | None = None
    finished: Finished = field(default_factory=Finished)
    pending: Mapping[int, Pending] = field(default_factory=dict)

    @property
    def watermark(self) -> float | None:
        """The beginning up to which reports and headers have come; where no header ever came, that of the reports."""
        if self.reports_newest is None or self.headers_newest is None:
            return self.reports_newest
        return min(self.reports_newest, self.headers_newest)

    def waiting(self) -> int:
        """Snapshots that are not finished."""
        return sum(pending.snapshots for pending in self.pending.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """``state``: the commits, and the rows of unfinished snapshots; ``results``: a folder for each batch."""

    state: Path
    results: Path

    def last(self) -> Progress:
        """After the newest committed batch; before the first: nothing."""
        found = sorted(self.state.glob("batch-*.json"))
        return _parsed(json.loads(found[-1].read_text())) if found else Progress()

    def commit(self, progress: Progress) -> None:
        """From here on the batch has been: first the state, then its results come to light, then what is old goes."""
        self.state.mkdir(parents=True, exist_ok=True)
        aside = self.state / f"_{progress.making}.json"
        with aside.open("w") as sink:
            json.dump(asdict(progress), sink)
            sink.flush()
            os.fsync(sink.fileno())
        aside.rename(self.state / f"batch-{progress.batch:012d}.json")
        self.publish(progress)
        self._forget(progress)

    def publish(self, progress: Progress) -> None:
        """Let readers see the results of a committed batch; done already, nothing happens."""
        made = self.results / progress.making
        if progress.making:
            with suppress(FileNotFoundError):
                made.rename(self.results / f"batch={progress.batch}")

    def clear(self) -> None:
        """Remove results that were in the making when a batch was cut short."""
        for made in self.results.glob("_making-*"):
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
        raise ProgressError("the results and the state here are of another checkpoint: name another folder, or remove this one")
    return last


def _parsed(raw: dict[str, Any]) -> Progress:
    intervals = tuple((low, high) for low, high in raw["finished"]["intervals"])
    pending = {int(bucket): Pending(**each) for bucket, each in raw["pending"].items()}
    return Progress(**raw | {"finished": Finished(intervals=intervals), "pending": pending})
