"""The pipeline as a stream: reports put together as they come, every verdict written once, whatever is killed whenever.

Rules:

1. A snapshot is finished when all its members' reports are there that its header expects; or, ``give_up_seconds`` after its
   beginning by the watermark, with those that are: incomplete. The watermark is the newest beginning seen both in reports and
   in headers (in reports alone where no header ever comes), as of the micro-batch before, and once more at a batch's end.
2. Reports of a finished snapshot, late or doubled, change nothing: the numbers of all finished snapshots are kept.
3. A micro-batch makes its results and the state after it aside, under names of its own. One small file, renamed into place,
   then says that the batch has been; its results come to light after that. A batch that Spark runs again after a crash
   is made anew if that file is not there, and passed over if it is.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.assembly import STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS
from detector.analysis.verdicts import WAIT_COLUMNS, columns_for
from detector.archive.files import Store
from detector.archive.schema import conformed
from detector.core.registry import Settings, find_predicates
from detector.spark.batch import spark_schema
from detector.spark.source.data_source import NAME, register
from detector.spark.streaming.bucket import RESULT, Assembled, Patience, assemble, fragment_schema
from detector.spark.streaming.packing import HEADER_COLUMNS, PACKED, PIECES, Worker, opened, packing
from detector.spark.streaming.progress import Folder, Pending, Progress, continued

GIVE_UP_SECONDS = 600.0
REPORTS_PER_HEADER = 10
ROWS_PER_TASK_MIN = 50_000
PACKED_AT_ONCE = 16
"""Packed rows that one Arrow batch holds: each may be as large as what is packed at once, and 2 GiB is Arrow's end."""
_FILES = "path string, modificationTime timestamp, length long, content binary"
_PATHS = {"pathGlobFilter": "*.parquet", "ignoreMissingFiles": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Where results and state go, what is asked, and how patient the assembly is.

    ``out`` is a path that all workers share. ``settings``: of the predicates, by name. ``bytes_per_batch_max``: of an
    archive's files; ``rows_per_batch_max``: of a detector's reports. ``buckets`` is fixed by the first batch.
    """

    out: Path
    predicates: tuple[str, ...] = ("deadlock", "gridlock")
    settings: Mapping[str, Settings] = field(default_factory=dict)
    give_up_seconds: float = GIVE_UP_SECONDS
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
        return Folder(state=self.out / "_stream" / "state", results=self.out / "verdicts")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``reports`` that the predicates need."""
        about_waits = columns_for(find_predicates(self.predicates, self.settings)) == WAIT_COLUMNS
        return (*WAIT_REPORT_COLUMNS, *(() if about_waits else STATE_REPORT_COLUMNS))


def archive_stream(spark: SparkSession, location: str, plan: StreamPlan) -> DataFrame:
    """The files of an archive's reports and headers, as they come to be. Workers read them; a torn one is named."""
    root = Store(location).root
    scheme = location.split("://", 1)[0] + "://" if "://" in location else ""

    def files(table: str) -> DataFrame:
        read = spark.readStream.format("binaryFile").schema(_FILES).options(**_PATHS)
        found = read.option("maxBytesPerTrigger", plan.bytes_per_batch_max).load(f"{scheme}{root}/{table}/*")
        return found.select(F.lit(table).alias("table"), "path", F.lit(None).cast("binary").alias("content"))

    return files("reports").unionByName(files("snapshots"))


def detector_stream(spark: SparkSession, options: Mapping[str, str], plan: StreamPlan) -> DataFrame:
    """The reports and headers of a live detector's archive, unopened; ``options``: those of the data source ``stilltrue``."""
    register(spark)

    def rows(table: str, columns: Sequence[str], rows_max: int) -> DataFrame:
        own = {"table": table, "columns": ",".join(columns), "packed": "true", "rows_per_batch_max": str(rows_max)}
        share = {"rows_per_partition": str(max(ROWS_PER_TASK_MIN, rows_max // spark.sparkContext.defaultParallelism))}
        found = spark.readStream.format(NAME).options(**{**share, **options, **own}).load()
        return found.select(F.lit(table).alias("table"), F.lit(None).cast("string").alias("path"), "content")

    most = plan.rows_per_batch_max
    headers = rows("snapshots", HEADER_COLUMNS, max(1, most // REPORTS_PER_HEADER))
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
    """All verdicts so far, as ``RESULT``: with what analysis wants of them, and with the files that were left out."""
    folder = plan.folder
    folder.publish(folder.last())
    if not any(folder.results.glob("batch=*")):
        return spark.createDataFrame([], spark_schema(RESULT))
    return spark.read.schema(spark_schema(RESULT)).parquet(str(folder.results)).drop("batch")


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
        making = f"_making-{batch:012d}-{uuid.uuid4().hex[:8]}"
        (folder.results / making).mkdir(parents=True)
        folder.state.mkdir(parents=True, exist_ok=True)
        pieces.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PACKED_AT_ONCE))
        packed = pieces.mapInArrow(
            packing(self._location, self._plan.columns, before.finished, before.buckets), spark_schema(PACKED)
        )
        after = self._made(packed, replace(before, batch=batch, making=making))
        folder.commit(self._given_up(pieces.sparkSession, after))

    def _made(self, packed: DataFrame, before: Progress, step: str = "come") -> Progress:
        """The state after the batch's rows have been put to those that waited."""
        work = assembling(self._plan, before, step)
        told = packed.repartition(before.buckets, "bucket").mapInArrow(work, "told string").collect()
        return _after(before, [json.loads(row.told) for row in told])

    def _given_up(self, spark: SparkSession, now: Progress) -> Progress:
        """Rule 1, by the watermark at the batch's end: for buckets with a snapshot that has become late."""
        mark = -inf if now.watermark is None else now.watermark
        late = [bucket for bucket, each in now.pending.items() if each.oldest + self._plan.give_up_seconds < mark]
        if not late:
            return now
        rows = spark.createDataFrame([(bucket, None, None, None) for bucket in sorted(late)], spark_schema(PACKED))
        return self._made(rows, now, "late")


def assembling(plan: StreamPlan, before: Progress, step: str) -> Worker:
    """A worker from packed rows to a line of JSON for each bucket; results and waiting rows go to files.

    ``step``: which of a batch's steps it is. A bucket's results bear one name in it, however often the task is tried.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packed: dict[int, list[bytes]] = {}
        torn: list[dict[str, str]] = []
        for batch in batches:
            for row in batch.to_pylist():
                if row["reason"] is not None:
                    torn.append({"left_out_path": row["path"], "left_out_reason": row["reason"]})
                else:
                    packed.setdefault(row["bucket"], []).extend([] if row["content"] is None else [row["content"]])
        if torn:
            _write(plan, before, f"{step}-left-out", pa.Table.from_pylist(torn, schema=RESULT))
        for bucket in sorted(packed):
            told = _bucket(plan, before, step, bucket, packed.pop(bucket))
            yield pa.RecordBatch.from_pydict({"told": [json.dumps(told)]})

    return work


def _bucket(plan: StreamPlan, before: Progress, step: str, bucket: int, contents: Sequence[bytes]) -> dict[str, Any]:
    schema = fragment_schema(plan.columns)
    waited = before.pending.get(bucket)
    tables = [opened(content) for content in contents]
    if waited is not None:
        with pa.memory_map(str(plan.folder.state / waited.file)) as source:
            tables.append(pa.ipc.open_file(source).read_all())
    rows = pa.concat_tables([conformed(table, schema) for table in tables])
    patience = Patience(
        watermark=before.watermark, give_up_seconds=plan.give_up_seconds, headers_expected=plan.headers_expected
    )
    made = assemble(rows, find_predicates(plan.predicates, plan.settings), patience)
    if made.verdicts.num_rows:
        empty = pa.nulls(made.verdicts.num_rows, pa.string())
        _write(plan, before, f"{step}-{bucket}", pa.table([*made.verdicts.columns, empty, empty], schema=RESULT))
    return {
        "bucket": bucket,
        "finished": made.finished,
        "pending": None if not made.waits else asdict(_kept(plan, before, bucket, made)),
        "reports_newest": made.reports_newest,
        "headers_newest": made.headers_newest,
    }


def _write(plan: StreamPlan, before: Progress, name: str, rows: pa.Table) -> None:
    """Aside, then renamed: a task that was killed leaves nothing that is read."""
    folder = plan.folder.results / before.making
    aside = folder / f"_{name}-{uuid.uuid4().hex[:8]}"
    pq.write_table(rows, aside, compression="zstd")
    _settle(aside)
    aside.rename(folder / f"{name}.parquet")


def _kept(plan: StreamPlan, before: Progress, bucket: int, made: Assembled) -> Pending:
    name = f"pending-{before.making}-{bucket}-{uuid.uuid4().hex[:8]}.arrow"
    path = plan.folder.state / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, made.waiting.schema) as writer:
        writer.write_table(made.waiting)
    _settle(path)
    return Pending(file=name, snapshots=made.waits, rows=made.waiting.num_rows, oldest=made.oldest)


def _settle(path: Path) -> None:
    """The bytes are there before they are named as there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _after(before: Progress, told: Sequence[Mapping[str, Any]]) -> Progress:
    pending = dict(before.pending)
    for each in told:
        pending.pop(each["bucket"], None)
        if each["pending"] is not None:
            pending[each["bucket"]] = Pending(**each["pending"])
    return replace(
        before,
        finished=before.finished.also(number for each in told for number in each["finished"]),
        pending=dict(sorted(pending.items())),
        reports_newest=_newest([before.reports_newest, *(each["reports_newest"] for each in told)]),
        headers_newest=_newest([before.headers_newest, *(each["headers_newest"] for each in told)]),
    )


def _newest(times: Sequence[float | None]) -> float | None:
    return max((time for time in times if time is not None), default=None)
