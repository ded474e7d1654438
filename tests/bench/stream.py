"""Measures the stream: `python tests/bench/stream.py` prints reports a second, from files and from a detector."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from detector.archive.files import ArchiveFiles
from detector.service.app import running
from detector.service.settings import Settings
from detector.service.storage.archive_sink import FOLDER
from detector.spark.session import open_session
from detector.spark.streaming.pipeline import archive_stream, detector_stream, start
from detector.spark.streaming.plan import StreamPlan
from detector.synthetic.generate import ArchivePlan, generate

PROCESSES = 100


def main() -> None:
    """Generate, then stream the archive: from its folders, and from a detector over it."""
    options = argparse.ArgumentParser()
    options.add_argument("--snapshots", type=int, default=30_000, help="of 100 processes each")
    options.add_argument("--master", default="local[2]")
    options.add_argument("--rows-per-batch", type=int, default=500_000)
    options.add_argument("--bytes-per-batch", type=int, default=32 * 2**20)
    options.add_argument("--buckets", type=int, default=8)
    options.add_argument("--predicate", action="append", default=[])
    asked = options.parse_args()
    predicates = tuple(asked.predicate or ["deadlock"])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        plan = ArchivePlan(processes=PROCESSES, snapshots=asked.snapshots, begun=1.79e9, incidents=10, near_misses=10)
        generate(ArchiveFiles(str(data / FOLDER)), plan, progress=lambda _: None)
        size = sum(path.stat().st_size for path in data.rglob("reports/*/*.parquet"))
        print(f"{asked.snapshots * PROCESSES} reports in {size / 2**20:.0f} MiB", flush=True)
        spark = open_session(asked.master)
        for turn in ("first", "second"):
            for kind in ("archive", "detector"):
                stream = StreamPlan(
                    out=f"{folder}/{kind}-{turn}",
                    predicates=predicates,
                    rows_per_batch_max=asked.rows_per_batch,
                    bytes_per_batch_max=asked.bytes_per_batch,
                    buckets=asked.buckets,
                )
                with _pieces(kind, data, stream) as pieces:
                    _run(f"{kind}, {turn}", pieces(spark), stream, str(data / FOLDER))
        spark.stop()


@contextmanager
def _pieces(kind: str, data: Path, plan: StreamPlan) -> Iterator[Any]:
    if kind == "archive":
        yield lambda spark: archive_stream(spark, str(data / FOLDER), plan)
        return
    ready, over = threading.Event(), threading.Event()
    found: list[str] = []

    async def run() -> None:
        async with running(Settings(port=0, http_port=0, data=data, period_seconds=0.0), []) as listening:
            found.append(listening.grpc)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield lambda spark: detector_stream(spark, {"address": found[0]}, plan)
    finally:
        over.set()
        thread.join()


def _run(name: str, pieces: DataFrame, plan: StreamPlan, location: str) -> None:
    """The whole, and the steady rate: without the first micro-batch, which warms up."""
    began, used = time.monotonic(), cpu_seconds()
    query = start(pieces, plan, location=location, once=True)
    query.awaitTermination()
    whole, used = time.monotonic() - began, cpu_seconds() - used
    seconds = {each["batchId"]: each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress}
    rows = {batch: _reports(plan, batch) for batch in seconds}
    total = sum(rows.values())
    steady = [batch for batch in seconds if batch > 0 and rows[batch]]
    told = ", ".join(f"{rows[batch] / 1000:.0f}k in {seconds[batch]:.1f} s" for batch in sorted(seconds))
    rate = sum(rows[batch] for batch in steady) / max(sum(seconds[batch] for batch in steady), 1e-9)
    print(
        f"{name:20} {total / whole / 1000:6.0f}k reports/s in all, {rate / 1000:6.0f}k/s steady, "
        f"{total / used / 1000:6.0f}k per second of one core  ({told})",
        flush=True,
    )


def _reports(plan: StreamPlan, batch: int) -> int:
    """The reports of the snapshots that a micro-batch finished."""
    files = (Path(plan.out) / "verdicts" / f"batch={batch}").glob("*.parquet")
    members = [value for file in files for value in pq.read_table(file, columns=["members"]).column(0).to_pylist()]
    return int(sum(members)) // len(plan.predicates)


def cpu_seconds() -> float:
    """What this process and all below it have used (Linux): the figure that a busy machine does not change much."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = place.read_text().rpartition(")")[2].split()
            parents[int(place.parent.name)] = int(fields[1])
            used[int(place.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, below = 0.0, [os.getpid()]
    while below:
        process = below.pop()
        total += used.get(process, 0.0)
        below += [child for child, parent in parents.items() if parent == process]
    return total


if __name__ == "__main__":
    main()
