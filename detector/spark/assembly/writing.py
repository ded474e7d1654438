"""Writes the output of a micro-batch: verdicts to files, and records to the coordinators. Idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from detector.archive.rows.row_encoder import verdict_row
from detector.archive.rows.schema import VERDICTS
from detector.assembly.cluster import RESULTS, Cluster, client
from detector.assembly.results import Result, message_of
from detector.ops.files.atomic_file import sync
from detector.spark.assembly.processor import ASKED, BEGUN, GIVEN_UP, JUDGED, LATE, UNASKED

EVENTS = (BEGUN, ASKED, JUDGED, GIVEN_UP, UNASKED, LATE)
COUNTS = ", ".join(f"{name} long" for name in (*EVENTS, "verdicts"))
Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def batch_writer(cluster: Cluster, folder: Path) -> Worker:
    """Return a worker that reduces the processor's output to counts, and writes verdicts to ``folder``, one file per task."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records: list[tuple[str, bytes]] = []
        counts = dict.fromkeys(EVENTS, 0)
        for key, value, what, number in (row for batch in batches for row in _rows(batch)):
            counts[what] += number
            if value is not None:
                records.append((key, bytes(value)))
        messages = (message_of(value) for _, value in records)
        results = [(fleet, found) for fleet, found in messages if isinstance(found, Result)]
        rows = [verdict_row(verdict) | {"archive": fleet} for fleet, result in results for verdict in result.verdicts]
        if rows:
            _write(folder, pa.Table.from_pylist(rows, schema=VERDICTS))
        if records:
            asyncio.run(_send(cluster, records))
        yield pa.RecordBatch.from_pydict({name: [count] for name, count in {**counts, "verdicts": len(rows)}.items()})

    return work


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, bytes | None, str, int]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _write(folder: Path, rows: pa.Table) -> None:
    """Write the task's file and rename it into place; a retried task replaces its file."""
    context = TaskContext.get()
    name = f"part-{0 if context is None else context.partitionId():05d}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"_{name}-{uuid4().hex[:8]}"
    pq.write_table(rows, temporary, compression="zstd")
    sync(temporary)
    temporary.rename(folder / name)


async def _send(cluster: Cluster, records: Iterable[tuple[str, bytes]]) -> None:
    producer = client(cluster).RecordProducer(cluster)
    try:
        await asyncio.gather(*(producer.put(RESULTS, key, value) for key, value in records))
    finally:
        await asyncio.to_thread(producer.close)
