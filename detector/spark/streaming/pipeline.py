"""The pipeline as a stream: assembles reports as they arrive, and writes every verdict exactly once, whatever is killed.

Rules:

1. When a snapshot is judged, and when once more: :mod:`detector.spark.streaming.bucket`. An archive's watermark is the newest
   beginning seen both in its reports and in its headers (in reports alone where no header ever comes), as of the micro-batch
   before, and once more at a batch's end.
2. Reports of a finished snapshot change nothing: the numbers of all finished snapshots are kept, by archive. Those that are
   late, not doubled, are counted.
3. A micro-batch makes its results and the state after it aside, under names of its own. One small file, renamed into place,
   then says that the batch has been; its results come to light after that. A batch that Spark runs again after a crash
   is made anew if that file is not there, and passed over if it is.
4. Before a batch is committed its verdicts are counted where the driver sees them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.assembly import HEADER_SOURCE, STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS
from detector.analysis.results import CountsError
from detector.analysis.verdicts import FOUND, WAIT_COLUMNS, columns_for
from detector.archive.files import ArchiveFiles
from detector.archive.rows.schema import conformed
from detector.core.registry import PredicateSettings, find_predicates
from detector.ops.atomic_file import sync
from detector.spark.batch import native_prefix, spark_schema
from detector.spark.source.archive_files import NAME as FILES
from detector.spark.source.archive_files import ArchiveFilesSource
from detector.spark.source.data_source import NAME, register
from detector.spark.streaming.bucket import Assembled, Patience, assemble, fragment_schema
from detector.spark.streaming.interval_set import NONE, Finished
from detector.spark.streaming.packing import PACKED, PIECES, Worker, opened, packing
from detector.spark.streaming.progress import RESULTS, Folder, Newest, Pending, Progress, continued

GIVE_UP_SECONDS = 600.0
LATE_SECONDS = 86_400.0
KEY = ("archive", "snapshot", "scope", "predicate")
REPORTS_PER_HEADER = 10
ROWS_PER_TASK_MIN = 50_000
LEFT_OUT = pa.schema([("path", pa.string()), ("reason", pa.string())])
PACKED_AT_ONCE = 16
"""Packed rows that one Arrow batch holds: each may be as large as what is packed at once, and 2 GiB is Arrow's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The folders of results and state, the predicates, and the patience of the assembly.

    ``out`` is a path that all workers share; ``results``: a directory or URI for the results, if not ``out``.
    ``give_up_seconds`` and ``late_seconds``: see rule 1. ``settings``: of the predicates, by name. ``bytes_per_batch_max``: of
    an archive's files; ``rows_per_batch_max``: of a detector's reports. ``buckets`` is fixed by the first batch.
    """

    out: Path
    results: str = ""
    predicates: tuple[str, ...] = ("deadlock", "gridlock")
    settings: Mapping[str, PredicateSettings] = field(default_factory=dict)
    give_up_seconds: float = GIVE_UP_SECONDS
    late_seconds: float = LATE_SECONDS
    headers_expected: bool = True
    bytes_per_batch_max: int = 32 * 2**20
    rows_per_batch_max: int = 500_000
    trigger_seconds: float = 1.0
    buckets: int = 8

    @property
    def checkpoint(self) -> Path:
        """Spark's own record of what it has read."""
        return self.out / "_stream" / "checkpoint"

    @property
    def folder(self) -> Folder:
        """Our record of what has been made of it."""
        return Folder(state=self.out / "_stream" / "state", results=self.results or self.out)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``reports`` that the predicates need."""
        about_waits = columns_for(find_predicates(self.predicates, self.settings)) == WAIT_COLUMNS
        return (*WAIT_REPORT_COLUMNS, *(() if about_waits else STATE_REPORT_COLUMNS))


def archive_stream(spark: SparkSession, location: str, plan: StreamPlan) -> DataFrame:
    """The files of an archive's reports and headers, as they come to be. Workers read them; a torn one is named."""
    spark.dataSource.register(ArchiveFilesSource)
    options = {
        "location": location,
        "log": str(plan.out / "_stream" / "files"),
        "bytes_per_batch_max": str(plan.bytes_per_batch_max),
        "tasks": str(spark.sparkContext.defaultParallelism),
    }
    return spark.readStream.format(FILES).options(**options).load()


def detector_stream(spark: SparkSession, options: Mapping[str, str], plan: StreamPlan) -> DataFrame:
    """The reports and headers of a live detector's archive, unopened; ``options``: those of the data source ``stilltrue``."""
    register(spark)

    def rows(table: str, columns: Sequence[str], rows_max: int) -> DataFrame:
        own = {"table": table, "columns": ",".join(columns), "packed": "true", "rows_per_batch_max": str(rows_max)}
        share = {"rows_per_partition": str(max(ROWS_PER_TASK_MIN, rows_max // spark.sparkContext.defaultParallelism))}
        found = spark.readStream.format(NAME).options(**{**share, **options, **own}).load()
        return found.select(F.lit(table).alias("table"), F.lit(None).cast("string").alias("path"), "content")

    most = plan.rows_per_batch_max
    headers = rows("snapshots", HEADER_SOURCE.names, max(1, most // REPORTS_PER_HEADER))
    return rows("reports", plan.columns, most).unionByName(headers)


def start(pieces: DataFrame, plan: StreamPlan, *, location: str = "", once: bool = False) -> StreamingQuery:
    """Start the query over what :func:`archive_stream` (of ``location``) or :func:`detector_stream` gives.

    Verdicts come to lie in ``out/verdicts/batch=N``. ``once``: take what is there, then end.
    """
    assert pieces.columns == PIECES.names
    writer = pieces.writeStream.option("checkpointLocation", str(plan.checkpoint)).foreachBatch(_Batch(plan, location))
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{plan.trigger_seconds} seconds"}
    return writer.trigger(**trigger).start()


def verdicts(spark: SparkSession, plan: StreamPlan) -> DataFrame:
    """All verdicts so far with their findings; of each the newest revision."""
    plan.folder.publish(plan.folder.last())
    store = ArchiveFiles(plan.results or str(plan.out))
    if not any(store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/verdicts", allow_not_found=True))):
        return spark.createDataFrame([], spark_schema(FOUND))
    files = spark.read.schema(spark_schema(FOUND)).parquet(f"{native_prefix(store)}{store.root}/verdicts")
    found = files.drop("batch").dropDuplicates([*KEY, "revision"])
    same = Window.partitionBy(*KEY)
    newest = F.max(F.coalesce("revision", F.lit(0))).over(same)
    return found.withColumn("newest", newest).where(F.coalesce("revision", F.lit(0)) == F.col("newest")).drop("newest")


class _Batch:
    """One micro-batch after the other; all that it remembers lies in the folder (rule 3)."""

    def __init__(self, plan: StreamPlan, location: str) -> None:
        self._plan = plan
        self._location = location

    def __call__(self, pieces: DataFrame, batch: int) -> None:
        folder = self._plan.folder
        last = folder.last()
        query = json.loads((self._plan.checkpoint / "metadata").read_text())["id"]
        before = continued(last, query=query, buckets=self._plan.buckets)
        folder.publish(last)
        if batch <= last.batch:
            return
        folder.clear()
        before = replace(before, batch=batch, making=f"_making-{batch:012d}-{uuid.uuid4().hex[:8]}")
        for table in RESULTS:
            (folder.made(before) / table).mkdir(parents=True)
        spark = pieces.sparkSession
        spark.sparkContext.setJobDescription(f"stilltrue: batch {batch}, assembled and judged")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PACKED_AT_ONCE))
        packed = pieces.mapInArrow(packing(self._location, self._plan.columns, before), spark_schema(PACKED))
        after = self._given_up(spark, self._made(packed, before))
        _check(folder.made(after) / "verdicts", after.verdicts - before.verdicts)
        folder.commit(after)

    def _made(self, packed: DataFrame, before: Progress, step: str = "come") -> Progress:
        """The state after the batch's rows have been put to those that waited."""
        work = assembling(self._plan, before, step)
        told = packed.repartition(before.buckets, "bucket").mapInArrow(work, "told string").collect()
        return _after(before, [json.loads(row.told) for row in told])

    def _given_up(self, spark: SparkSession, now: Progress) -> Progress:
        """Rule 1, by the watermarks at the batch's end: for buckets with a snapshot that has become late."""
        marks = now.watermarks()
        late = [
            bucket for bucket, each in now.pending.items() if any(due < marks.get(at, -inf) for at, due in each.due.items())
        ]
        if not late:
            return now
        rows = spark.createDataFrame([(bucket, None, None, None, None) for bucket in sorted(late)], spark_schema(PACKED))
        return self._made(rows, now, "late")


def _check(folder: Path, told: int) -> None:
    """Rule 4. Raises :class:`CountsError`."""
    written = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    if written != told:
        raise CountsError(f"{told} verdicts were written and {written} are in {folder}: all workers must share --out")


def assembling(plan: StreamPlan, before: Progress, step: str) -> Worker:
    """A worker from packed rows to a line of JSON for each bucket; results and waiting rows go to files.

    ``step``: which of a batch's steps it is. A bucket's results bear one name in it, however often the task is tried.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packed: dict[int, list[bytes]] = {}
        torn: list[dict[str, str]] = []
        late = 0
        for batch in batches:
            for row in batch.to_pylist():
                late += row["late"] or 0
                if row["reason"] is not None:
                    torn.append({"path": row["path"], "reason": row["reason"]})
                elif row["late"] is None:
                    packed.setdefault(row["bucket"], []).extend([] if row["content"] is None else [row["content"]])
        if torn:
            _write(plan, before, "left_out", step, pa.Table.from_pylist(torn, schema=LEFT_OUT))
        if late:
            yield _step_record({"late": late})
        for bucket in sorted(packed):
            yield _step_record(_bucket(plan, before, step, bucket, packed.pop(bucket)))

    return work


def _step_record(step: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"told": [json.dumps(step)]})


def _bucket(plan: StreamPlan, before: Progress, step: str, bucket: int, contents: Sequence[bytes]) -> dict[str, Any]:
    schema = fragment_schema(plan.columns)
    waited = before.pending.get(bucket)
    tables = [schema.empty_table()]
    if waited is not None:
        with pa.memory_map(str(plan.folder.state / waited.file)) as source:
            tables.append(pa.ipc.open_file(source).read_all())
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
    return {
        "bucket": bucket,
        "finished": {archive: each.finished for archive, each in made.items()},
        "closed": {archive: each.closed for archive, each in made.items()},
        "newest": {archive: each.newest for archive, each in made.items()},
        "pending": _kept(plan, before, bucket, made),
        "verdicts": verdicts.num_rows,
        "corrected": sum(each.corrected for each in made.values()) * len(predicates),
    }


def _write(plan: StreamPlan, before: Progress, table: str, name: str, rows: pa.Table) -> None:
    """Aside, then renamed: a task that was killed leaves nothing that is read."""
    folder = plan.folder.made(before) / table
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"_{name}-{uuid.uuid4().hex[:8]}"
    pq.write_table(rows, aside, compression="zstd")
    sync(aside)
    unique = f"{name}-{uuid.uuid4().hex[:8]}" if table == "left_out" else name
    aside.rename(folder / f"{unique}.parquet")


def _kept(plan: StreamPlan, before: Progress, bucket: int, made: Mapping[str, Assembled]) -> dict[str, Any] | None:
    if not any(each.waiting.num_rows for each in made.values()):
        return None
    rows = pa.concat_tables([each.waiting for each in made.values()])
    name = f"pending-{before.making}-{bucket}-{uuid.uuid4().hex[:8]}.arrow"
    path = plan.folder.state / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    sync(path)
    return {
        "file": name,
        "snapshots": sum(each.waits for each in made.values()),
        "given_up": sum(each.given_up for each in made.values()),
        "rows": rows.num_rows,
        "due": {archive: each.due for archive, each in made.items() if each.waiting.num_rows},
    }


def _after(before: Progress, told: Sequence[Mapping[str, Any]]) -> Progress:
    pending = dict(before.pending)
    for each in told:
        if "bucket" in each:
            pending.pop(each["bucket"], None)
            if each["pending"] is not None:
                pending[each["bucket"]] = Pending(**each["pending"])
    sums = {name: getattr(before, name) + sum(each.get(name, 0) for each in told) for name in ("verdicts", "corrected", "late")}
    return replace(
        before,
        finished=_also(before.finished, [each.get("finished", {}) for each in told]),
        closed=_also(before.closed, [each.get("closed", {}) for each in told]),
        pending=dict(sorted(pending.items())),
        newest=_newest([before.newest, *(each.get("newest", {}) for each in told)]),
        **sums,
    )


def _also(sets: Mapping[str, Finished], more: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Finished]:
    found = dict(sets)
    for each in more:
        for archive, numbers in each.items():
            found[archive] = found.get(archive, NONE).also(numbers)
    return found


def _newest(told: Sequence[Mapping[str, Sequence[float | None]]]) -> dict[str, Newest]:
    found: dict[str, Newest] = {}
    for each in told:
        for archive, times in each.items():
            known = found.get(archive, (None, None))
            reports, headers = (
                max((t for t in pair if t is not None), default=None) for pair in zip(known, times, strict=True)
            )
            found[archive] = reports, headers
    return found


def _latest(one: float | None, two: float | None) -> float | None:
    return max((time for time in (one, two) if time is not None), default=None)
