"""One micro-batch: what its workers do with packed rows, and what the driver makes of what they tell.

Rules:

1. When a snapshot is judged, and when once more: :mod:`detector.spark.streaming.bucket`. An archive's watermark is when
   the newest snapshot began that was seen both in its reports and in its headers (in reports alone where no header ever comes),
   as of the micro-batch before, and once more at a batch's end. The newest has the highest number: a clock that was ahead for a
   while makes nothing late afterwards.
2. Reports of a finished snapshot change nothing: the numbers of all finished snapshots are kept, by archive. Those that are
   late, not doubled, are counted.
3. A micro-batch makes its results and the state after it aside, under new names. One small file then says that the
   batch has been, and what it has read (:mod:`detector.spark.streaming.progress`); its results come to light after that. A
   stream that was killed begins behind the last batch that has been. A file that was torn has not been read.
4. Before a batch is committed its verdicts are counted where the driver sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from detector.analysis.result_folder import check_rows
from detector.analysis.verdicts import FOUND
from detector.archive.deduplicate import mixed_text
from detector.archive.files import ArchiveFiles
from detector.archive.rows.schema import conformed
from detector.core.registry import find_predicates
from detector.spark.streaming.bucket import AssembledBucket, Patience, assemble, fragment_schema
from detector.spark.streaming.interval_set import NONE, Finished
from detector.spark.streaming.packing import Worker, opened, packing, times_file, times_of
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import MAKING, NEVER, Epoch, Folder, Newest, Pending, Progress
from detector.spark.streaming.storage import Storage

LEFT_OUT = pa.schema([("path", pa.string()), ("reason", pa.string())])
LOGS_MAX = 100
"""As many files that say what was read become one."""
TABLES = ("reports", "snapshots")


class Workers(Protocol):
    """Where the work on one micro-batch's input is done."""

    def packed(self, pack: Worker, assemble: Worker, buckets: int) -> Sequence[str]:
        """Give the input to ``pack``, what that gives by bucket to ``assemble``, and return what that tells."""

    def waiting(self, assemble: Worker, buckets: Sequence[int]) -> Sequence[str]:
        """Give ``assemble`` these buckets, with no new rows."""


class MicroBatches:
    """One micro-batch after the other, of a stream that has begun an epoch; all that it remembers lies in the folder."""

    def __init__(self, plan: StreamPlan, location: str, epoch: Epoch) -> None:
        """Bring to light what was committed last, if that was cut short. ``location``: of the archive, if one is read."""
        self._plan = plan
        self._location = location
        self._epoch = epoch
        self._folder: Folder = plan.folder
        last = self._folder.resume()
        self._last = replace(last, buckets=plan.buckets) if last.batch < 0 else last

    def run(self, workers: Workers) -> Progress:
        """Do the next batch and commit it. Raises :class:`CountsError`, or what the storage raises: nothing has been then."""
        last = self._last
        number = last.batch + 1
        before = replace(last, batch=number, making=f"{MAKING}{number:012d}-{uuid4().hex[:8]}")
        pack = packing(self._location, self._plan.columns, before, self._plan.state_storage)
        told = workers.packed(pack, assembling(self._plan, before, "come"), before.buckets)
        after = self._given_up(workers, _after(before, [json.loads(each) for each in told]))
        after = self._read(after, [json.loads(each) for each in told])
        check_count(self._folder.state, f"{after.making}/verdicts", after.verdicts - before.verdicts)
        self._folder.commit(after, self._epoch)
        self._last = after
        return after

    def _given_up(self, workers: Workers, now: Progress) -> Progress:
        """Rule 1, by the watermarks at the batch's end: for buckets with a snapshot that has become late."""
        marks = now.watermarks()
        late = [
            bucket for bucket, each in now.pending.items() if any(due < marks.get(at, NEVER)[1] for at, due in each.due.items())
        ]
        if not late:
            return now
        told = workers.waiting(assembling(self._plan, now, "late"), sorted(late))
        return _after(now, [json.loads(each) for each in told])

    def _read(self, now: Progress, told: Sequence[Mapping[str, Any]]) -> Progress:
        """What has been read, beside the state: the files of this batch, and from time to time all in one."""
        files: dict[str, int] = {}
        torn = set(now.torn)
        for each in told:
            files |= each.get("files", {})
            torn |= set(each.get("torn", ()))
        logs = now.logs
        if files:
            if len(logs) >= LOGS_MAX:
                there = _there(self._location)
                files = {path: size for path, size in (self._folder.sizes(now) | files).items() if path in there}
                logs = ()
            logs = (*logs, f"read-{now.batch:012d}-{uuid4().hex[:8]}.json")
            self._folder.state.write(logs[-1], json.dumps(files).encode())
        return replace(now, logs=logs, torn=tuple(sorted(_still_there(self._location, torn - files.keys()))))


def _still_there(location: str, torn: set[str]) -> set[str]:
    """Those of these paths of an archive at which there is a file."""
    if not torn:
        return torn
    found = ArchiveFiles(location).filesystem.get_file_info(sorted(torn))
    return {entry.path for entry in found if entry.type == fs.FileType.File}


def _there(location: str) -> set[str]:
    """The paths of an archive's files."""
    store = ArchiveFiles(location)
    return {entry.path for table in TABLES for day in store.days(table) for entry in store.entries(table, day)}


def check_count(state: Storage, folder: str, told: int) -> None:
    """Rule 4. Raises :class:`CountsError`."""
    names = [name for name in state.names(folder) if name.endswith(".parquet")]
    written = sum(pq.read_metadata(pa.BufferReader(state.read(f"{folder}/{name}"))).num_rows for name in names)
    check_rows(told, written, f"{state.location}/{state.folder}/{folder}")


def assembling(plan: StreamPlan, before: Progress, step: str) -> Worker:
    """A worker from packed rows to a line of JSON for each bucket; results and waiting rows go to files.

    ``step``: which of a batch's steps it is. A bucket's results bear one name in it, however often the task is tried.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = _Gathered()
        for batch in batches:
            for row in batch.to_pylist():
                gathered.add(row)
        if gathered.left_out:
            name = f"{step}-{uuid4().hex[:8]}"
            _write(plan, before, "left_out", name, pa.Table.from_pylist(gathered.left_out, schema=LEFT_OUT))
        read = {"files": gathered.files, "positions": gathered.positions, "torn": gathered.torn}
        yield _told({"late": gathered.late, "mixed": sorted(gathered.mixed), **read})
        for bucket in sorted(gathered.packed):
            yield _told(_bucket(plan, before, step, bucket, gathered.packed.pop(bucket)))

    return work


@dataclass(slots=True)
class _Gathered:
    """The packed rows that come to one task, by what they are (:data:`~detector.spark.streaming.packing.PACKED`)."""

    packed: dict[int, list[bytes]] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    mixed: set[int] = field(default_factory=set)
    late: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        if row["reason"] is not None:
            self.left_out.append({"path": row["path"], "reason": row["reason"]})
            self.mixed.update(row["mixed"] or ())
            self.torn += [] if row["mixed"] else [row["path"]]
        elif row["path"] is not None:
            self.files[row["path"]] = row["bytes"]
        elif row["table"] is not None:
            self.positions[row["table"]] = max(row["until"], self.positions.get(row["table"], row["until"]))
        elif row["late"] is not None:
            self.late += row["late"]
        else:
            self.packed.setdefault(row["bucket"], []).extend([] if row["content"] is None else [row["content"]])


def _told(step: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"told": [json.dumps(step)]})


def _bucket(plan: StreamPlan, before: Progress, step: str, bucket: int, contents: Sequence[bytes]) -> dict[str, Any]:
    schema = fragment_schema(plan.columns)
    waited = before.pending.get(bucket)
    tables = [schema.empty_table()]
    if waited is not None:
        tables.append(pa.ipc.open_file(plan.state_storage.read(waited.file)).read_all())
    tables += [opened(content) for content in contents]
    predicates = find_predicates(plan.predicates, plan.settings)
    patience = Patience(
        watermarks=before.watermarks(),
        give_up_seconds=plan.give_up_seconds,
        late_seconds=plan.late_seconds,
        headers_expected=plan.headers_expected,
    )
    made = assemble(pa.concat_tables([conformed(table, schema) for table in tables]), predicates, patience)
    verdicts = pa.concat_tables([FOUND.empty_table(), *(each.verdicts for each in made.values())])
    if verdicts.num_rows:
        _write(plan, before, "verdicts", f"{step}-{bucket}", verdicts)
    both = [number for each in made.values() for number in each.mixed]
    if both:
        left_out = pa.Table.from_pylist([{"path": "", "reason": mixed_text(both)}], schema=LEFT_OUT)
        _write(plan, before, "left_out", f"{step}-mixed-{bucket}", left_out)
    return {
        "bucket": bucket,
        "finished": {archive: each.finished for archive, each in made.items()},
        "closed": {archive: each.closed for archive, each in made.items()},
        "newest": {archive: each.newest for archive, each in made.items()},
        "pending": _kept(plan, before, bucket, made),
        "verdicts": verdicts.num_rows,
        "mixed": both,
        "began": _began(plan, before, bucket, made),
        "corrected": sum(each.corrected for each in made.values()) * len(predicates),
    }


def _write(plan: StreamPlan, before: Progress, table: str, name: str, rows: pa.Table) -> None:
    """In one step: a task that was killed leaves nothing that is read."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    plan.state_storage.write(f"{before.making}/{table}/{name}.parquet", sink.getvalue())


def _kept(plan: StreamPlan, before: Progress, bucket: int, made: Mapping[str, AssembledBucket]) -> dict[str, Any] | None:
    if not any(each.waiting.num_rows for each in made.values()):
        return None
    rows = pa.concat_tables([each.waiting for each in made.values()])
    name = f"pending-{before.making}-{bucket}-{uuid4().hex[:8]}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    plan.state_storage.write(name, sink.getvalue())
    return {
        "file": name,
        "snapshots": sum(each.waits for each in made.values()),
        "given_up": sum(each.given_up for each in made.values()),
        "rows": rows.num_rows,
        "due": {archive: each.due for archive, each in made.items() if each.waiting.num_rows},
    }


def _began(plan: StreamPlan, before: Progress, bucket: int, made: Mapping[str, AssembledBucket]) -> str | None:
    """The file that says when the bucket's finished snapshots of an archive without an id began; None: as before."""
    fresh = {number: begun for each in made.values() for number, begun in each.began.items()}
    if not fresh:
        return None
    known = before.began.get(bucket)
    name = f"began-{before.making}-{bucket}-{uuid4().hex[:8]}.arrow"
    plan.state_storage.write(name, times_file(({} if known is None else times_of(plan.state_storage.read(known))) | fresh))
    return name


def _after(before: Progress, told: Sequence[Mapping[str, Any]]) -> Progress:
    """The state after a step, from what its workers have told."""
    pending, positions = dict(before.pending), dict(before.positions)
    for each in told:
        if "bucket" in each:
            pending.pop(each["bucket"], None)
            if each["pending"] is not None:
                pending[each["bucket"]] = Pending(**each["pending"])
        for table, until in each.get("positions", {}).items():
            positions[table] = max(until, positions.get(table, until))
    began = {each["bucket"]: each["began"] for each in told if each.get("began")}
    sums = {name: getattr(before, name) + sum(each.get(name, 0) for each in told) for name in ("verdicts", "corrected", "late")}
    return replace(
        before,
        finished=_also(before.finished, [each.get("finished", {}) for each in told]),
        closed=_also(before.closed, [each.get("closed", {}) for each in told]),
        pending=dict(sorted(pending.items())),
        newest=_newest([before.newest, *(each.get("newest", {}) for each in told)]),
        positions=positions,
        mixed=before.mixed.also([number for each in told for number in each.get("mixed", ())]),
        began={**before.began, **began},
        **sums,
    )


def _also(sets: Mapping[str, Finished], more: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Finished]:
    found = dict(sets)
    for each in more:
        for archive, numbers in each.items():
            found[archive] = found.get(archive, NONE).also(numbers)
    return found


def _newest(told: Sequence[Mapping[str, Sequence[Sequence[float] | None]]]) -> dict[str, Newest]:
    found: dict[str, Newest] = {}
    for each in told:
        for archive, newest in each.items():
            known = found.get(archive, (None, None))
            reports, headers = (
                max(((int(one[0]), one[1]) for one in pair if one is not None), default=None)
                for pair in zip(known, newest, strict=True)
            )
            found[archive] = reports, headers
    return found
