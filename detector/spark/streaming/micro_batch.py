"""One micro-batch: the workers process packed rows, and the driver combines their summaries to the next state.

Rules:

1. :mod:`detector.spark.streaming.bucket` says when a snapshot is judged, and when again. An archive's watermark is the start
   time of the newest snapshot seen both in reports and in headers (or only in reports, if it has no headers), as of the
   previous micro-batch; it is applied again at the end of a batch. The newest snapshot is that with the highest number, so a
   clock that was temporarily ahead does not make later snapshots late.
2. Reports of a finished snapshot change nothing; the numbers of all finished snapshots are stored, by archive. Late reports are
   counted, but not duplicates.
3. A micro-batch writes its results and its state under new names. Then one small file commits the batch and names what it has
   read (:mod:`detector.spark.streaming.progress`), and the results are published. A stream that was killed continues after the
   last committed batch. A damaged file counts as not read.
4. Before a batch is committed, the driver counts the verdicts that it can see.
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
from detector.archive.deduplicate import ambiguity_text
from detector.archive.files import ArchiveFiles
from detector.archive.rows.schema import conformed
from detector.core.registry import find_predicates
from detector.spark.streaming.bucket import AssembledBucket, Patience, assemble, fragment_schema
from detector.spark.streaming.interval_set import EMPTY, IntervalSet
from detector.spark.streaming.packing import Worker, packer, times_file, times_of, unpacked
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import MAKING, NEVER, Epoch, Folder, Newest, Pending, Progress
from detector.spark.streaming.storage import Storage

LEFT_OUT = pa.schema([("path", pa.string()), ("reason", pa.string())])
LOGS_MAX = 100
"""The lists of files read are merged when there are this many."""
TABLES = ("reports", "snapshots")


class Workers(Protocol):
    """Processes the input of one micro-batch."""

    def packed(self, pack: Worker, assemble: Worker, buckets: int) -> Sequence[str]:
        """Apply ``pack`` to the input and ``assemble`` to the result, by bucket; return the summaries."""

    def waiting(self, assemble: Worker, buckets: Sequence[int]) -> Sequence[str]:
        """Apply ``assemble`` to these buckets without new rows; return the summaries."""


class MicroBatches:
    """Runs the micro-batches of a stream that has begun an epoch; all of its state is in the folder."""

    def __init__(self, plan: StreamPlan, location: str, epoch: Epoch) -> None:
        """Complete the last commit if it was interrupted. ``location`` is the archive's, if one is read."""
        self._plan = plan
        self._location = location
        self._epoch = epoch
        self._folder: Folder = plan.folder
        last = self._folder.resume()
        self._last = replace(last, predicates=plan.predicates, buckets=plan.buckets if last.batch < 0 else last.buckets)

    def run(self, workers: Workers) -> Progress:
        """Run the next batch and commit it. If it raises :class:`CountsError` or a storage error, nothing is committed."""
        last = self._last
        number = last.batch + 1
        before = replace(last, batch=number, making=f"{MAKING}{number:012d}-{uuid4().hex[:8]}")
        pack = packer(self._location, self._plan.columns, before, self._plan.state_storage)
        output = workers.packed(pack, assembler(self._plan, before, "come"), before.buckets)
        summaries = [json.loads(each) for each in output]
        after = self._judge_late(workers, _after(before, summaries))
        after = self._record_files(after, summaries)
        check_count(self._folder.state, f"{after.making}/verdicts", after.verdicts - before.verdicts)
        self._folder.commit(after, self._epoch)
        self._last = after
        return after

    def _judge_late(self, workers: Workers, now: Progress) -> Progress:
        """Apply rule 1 with the watermarks at the batch's end to buckets with a snapshot that has become late."""
        marks = now.watermarks()
        late = [
            bucket for bucket, each in now.pending.items() if any(due < marks.get(at, NEVER)[1] for at, due in each.due.items())
        ]
        if not late:
            return now
        output = workers.waiting(assembler(self._plan, now, "late"), sorted(late))
        return _after(now, [json.loads(each) for each in output])

    def _record_files(self, now: Progress, summaries: Sequence[Mapping[str, Any]]) -> Progress:
        """Write the list of the batch's files; merge all lists from time to time."""
        files: dict[str, int] = {}
        torn = set(now.torn)
        for each in summaries:
            files |= each.get("files", {})
            torn |= set(each.get("torn", ()))
        logs = now.logs
        if files:
            if len(logs) >= LOGS_MAX:
                present = _archive_paths(self._location)
                files = {path: size for path, size in (self._folder.sizes(now) | files).items() if path in present}
                logs = ()
            logs = (*logs, f"read-{now.batch:012d}-{uuid4().hex[:8]}.json")
            self._folder.state.write(logs[-1], json.dumps(files).encode())
        return replace(now, logs=logs, torn=tuple(sorted(_existing(self._location, torn - files.keys()))))


def _existing(location: str, torn: set[str]) -> set[str]:
    """Return the paths in an archive at which a file exists."""
    if not torn:
        return torn
    found = ArchiveFiles(location).filesystem.get_file_info(sorted(torn))
    return {entry.path for entry in found if entry.type == fs.FileType.File}


def _archive_paths(location: str) -> set[str]:
    """Return the paths of all files of an archive."""
    store = ArchiveFiles(location)
    return {entry.path for table in TABLES for day in store.days(table) for entry in store.entries(table, day)}


def check_count(state: Storage, folder: str, expected: int) -> None:
    """Apply rule 4. Raises :class:`CountsError`."""
    names = [name for name in state.names(folder) if name.endswith(".parquet")]
    written = sum(pq.read_metadata(pa.BufferReader(state.read(f"{folder}/{name}"))).num_rows for name in names)
    check_rows(expected, written, f"{state.location}/{state.folder}/{folder}")


def assembler(plan: StreamPlan, before: Progress, step: str) -> Worker:
    """Return a worker that reduces packed rows to a line of JSON per bucket; results and waiting rows go to files.

    ``step`` names the step of the batch. A bucket's results have the same name in each try of a task.
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
        yield _summary({"late": gathered.late, "mixed": sorted(gathered.mixed), **read})
        for bucket in sorted(gathered.packed):
            yield _summary(_bucket(plan, before, step, bucket, gathered.packed.pop(bucket)))

    return work


@dataclass(slots=True)
class _Gathered:
    """The packed rows of one task, by kind (:data:`~detector.spark.streaming.packing.PACKED`)."""

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


def _summary(content: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"summary": [json.dumps(content)]})


def _bucket(plan: StreamPlan, before: Progress, step: str, bucket: int, contents: Sequence[bytes]) -> dict[str, Any]:
    schema = fragment_schema(plan.columns)
    waited = before.pending.get(bucket)
    tables = [schema.empty_table()]
    if waited is not None:
        tables.append(pa.ipc.open_file(plan.state_storage.read(waited.file)).read_all())
    tables += [unpacked(content) for content in contents]
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
        left_out = pa.Table.from_pylist([{"path": "", "reason": ambiguity_text(both)}], schema=LEFT_OUT)
        _write(plan, before, "left_out", f"{step}-mixed-{bucket}", left_out)
    return {
        "bucket": bucket,
        "finished": {archive: each.finished for archive, each in made.items()},
        "closed": {archive: each.closed for archive, each in made.items()},
        "newest": {archive: each.newest for archive, each in made.items()},
        "pending": _store_waiting(plan, before, bucket, made),
        "verdicts": verdicts.num_rows,
        "mixed": both,
        "began": _store_start_times(plan, before, bucket, made),
        "corrected": sum(each.corrected for each in made.values()),
    }


def _write(plan: StreamPlan, before: Progress, table: str, name: str, rows: pa.Table) -> None:
    """Write a file atomically, so that a task that is killed leaves no partial file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    plan.state_storage.write(f"{before.making}/{table}/{name}.parquet", sink.getvalue())


def _store_waiting(
    plan: StreamPlan, before: Progress, bucket: int, made: Mapping[str, AssembledBucket]
) -> dict[str, Any] | None:
    """Write the bucket's waiting rows; return the values of its ``Pending``, or None if there are no rows."""
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


def _store_start_times(plan: StreamPlan, before: Progress, bucket: int, made: Mapping[str, AssembledBucket]) -> str | None:
    """Write the start times of the bucket's finished snapshots, for archives without an id; return the file if it is new."""
    fresh = {number: begun for each in made.values() for number, begun in each.began.items()}
    if not fresh:
        return None
    known = before.began.get(bucket)
    name = f"began-{before.making}-{bucket}-{uuid4().hex[:8]}.arrow"
    plan.state_storage.write(name, times_file(({} if known is None else times_of(plan.state_storage.read(known))) | fresh))
    return name


def _after(before: Progress, summaries: Sequence[Mapping[str, Any]]) -> Progress:
    """Return the state after a step, from its workers' summaries."""
    pending, positions = dict(before.pending), dict(before.positions)
    for each in summaries:
        if "bucket" in each:
            pending.pop(each["bucket"], None)
            if each["pending"] is not None:
                pending[each["bucket"]] = Pending(**each["pending"])
        for table, until in each.get("positions", {}).items():
            positions[table] = max(until, positions.get(table, until))
    began = {each["bucket"]: each["began"] for each in summaries if each.get("began")}
    counts = ("verdicts", "corrected", "late")
    sums = {name: getattr(before, name) + sum(each.get(name, 0) for each in summaries) for name in counts}
    return replace(
        before,
        finished=_union(before.finished, [each.get("finished", {}) for each in summaries]),
        closed=_union(before.closed, [each.get("closed", {}) for each in summaries]),
        pending=dict(sorted(pending.items())),
        newest=_newest([before.newest, *(each.get("newest", {}) for each in summaries)]),
        positions=positions,
        mixed=before.mixed.union([number for each in summaries for number in each.get("mixed", ())]),
        began={**before.began, **began},
        **sums,
    )


def _union(sets: Mapping[str, IntervalSet], more: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, IntervalSet]:
    found = dict(sets)
    for each in more:
        for archive, numbers in each.items():
            found[archive] = found.get(archive, EMPTY).union(numbers)
    return found


def _newest(summaries: Sequence[Mapping[str, Sequence[Sequence[float] | None]]]) -> dict[str, Newest]:
    found: dict[str, Newest] = {}
    for each in summaries:
        for archive, newest in each.items():
            known = found.get(archive, (None, None))
            reports, headers = (
                max(((int(one[0]), one[1]) for one in pair if one is not None), default=None)
                for pair in zip(known, newest, strict=True)
            )
            found[archive] = reports, headers
    return found
