"""What a micro-batch gives: verdicts as files, and records for the coordinators. Doing a batch twice changes nothing."""

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
from detector.ops.atomic_file import sync
from detector.spark.assembly.processor import ASKED, BEGUN, GIVEN_UP, JUDGED, LATE, UNASKED

HAPPENINGS = (BEGUN, ASKED, JUDGED, GIVEN_UP, UNASKED, LATE)
COUNTS = ", ".join(f"{name} long" for name in (*HAPPENINGS, "verdicts"))
Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def writing(cluster: Cluster, made: Path) -> Worker:
    """A worker from what the processor gives to counts; verdicts go to files in ``made``, one for each task."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said: list[tuple[str, bytes]] = []
        counts = dict.fromkeys(HAPPENINGS, 0)
        for key, value, what, number in (row for batch in batches for row in _rows(batch)):
            counts[what] += number
            if value is not None:
                said.append((key, bytes(value)))
        results = [(fleet, found) for fleet, found in (message_of(value) for _, value in said) if isinstance(found, Result)]
        rows = [verdict_row(verdict) | {"archive": fleet} for fleet, result in results for verdict in result.verdicts]
        if rows:
            _write(made, pa.Table.from_pylist(rows, schema=VERDICTS))
        if said:
            asyncio.run(_send(cluster, said))
        told = {**counts, "verdicts": len(rows)}
        yield pa.RecordBatch.from_pydict({name: [count] for name, count in told.items()})

    return work


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, bytes | None, str, int]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _write(folder: Path, rows: pa.Table) -> None:
    """Aside, then renamed: the same task, tried again, replaces its file."""
    context = TaskContext.get()
    name = f"part-{0 if context is None else context.partitionId():05d}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"_{name}-{uuid4().hex[:8]}"
    pq.write_table(rows, aside, compression="zstd")
    sync(aside)
    aside.rename(folder / name)


async def _send(cluster: Cluster, said: Iterable[tuple[str, bytes]]) -> None:
    producer = client(cluster).RecordProducer(cluster)
    try:
        await asyncio.gather(*(producer.put(RESULTS, key, value) for key, value in said))
    finally:
        await asyncio.to_thread(producer.close)
