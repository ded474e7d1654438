"""Reports in an object store instead of Kafka: the same rows as a single detector's, and by `stilltrue assemble`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from detector.archive.rows.row_decoder import verdict_of
from detector.archive.rows.row_encoder import verdict_row
from detector.assembly.cluster import REPORTS, RESULTS, Cluster
from detector.assembly.objects import Position, RecordProducer, Topic, advanced, fresh
from detector.assembly.records import key_of
from detector.assembly.results import Result, message_of
from detector.assembly.step import step
from stilltrue.model import Verdict
from tests.assembly.test_step import MADE, _answers, _ended, _records
from tests.collector.conftest import collected
from tests.collector.test_collected import LEASE, Scene, deadlocked, idle_then_busy, incidents, rows
from tests.service.conftest import detecting
from tests.synthetic.object_storage import BUCKET, object_storage, verdict_rows

PATIENCE = {"give_up_seconds": 20.0, "suspect_seconds": 20.0}


@contextlib.asynccontextmanager
async def assembling(cluster: Cluster) -> AsyncIterator[None]:
    """What `stilltrue assemble` does with the objects, without Spark."""
    producer, topic = RecordProducer(cluster), Topic(cluster, REPORTS)

    async def run() -> None:
        position, kept = Position(), defaultdict[str, list[bytes]](list)
        asked, done = defaultdict[str, int](int), set[str]()
        while True:
            there = await asyncio.to_thread(topic.listed, position.hour)
            for each in fresh(position, there, time.time()):
                position = advanced(position, [each])
                for row in topic.read(each.path).to_pylist():
                    kept[row["key"]].append(row["value"])
                    found = None if row["key"] in done else step(kept[row["key"]], asked=asked[row["key"]])
                    if found is not None:
                        asked[row["key"]] = found.asked
                        done |= {row["key"]} if found.result is not None else set()
                        await producer.put(RESULTS, row["key"], found.record)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(producer.close)


@pytest.mark.slow
@pytest.mark.longer
@pytest.mark.parametrize("scene", [deadlocked, idle_then_busy], ids=lambda scene: scene.__name__)
async def test_every_row_equals_that_of_a_single_detector(scene: Scene, tmp_path: Path) -> None:
    async with detecting(tmp_path / "one", **LEASE) as detector:
        await scene(detector)
        wanted, told = await rows(detector), await incidents(detector)
    where = str(tmp_path / "records")
    async with assembling(Cluster(where)), collected(tmp_path / "many", kafka=where, **LEASE | PATIENCE) as coordinator:
        await scene(coordinator)
        assert await rows(coordinator) == wanted
        assert await incidents(coordinator) == told
    assert wanted


@pytest.mark.longer
@pytest.mark.timeout(400)
@pytest.mark.not_in_ci
def test_assemble_reads_records_from_a_store_with_the_same_verdicts(tmp_path: Path) -> None:
    """Without a coordinator: its headers, and its answers to the rounds of looks, are there from the beginning."""
    wanted: dict[tuple[str | None, int, str], Verdict] = {}
    results: dict[int, Result] = {}
    records: list[tuple[str, bytes]] = []
    for number, made in enumerate(MADE, start=1):
        own = _records(made.assembled)
        ended, asked = _ended(own)
        assert ended.result is not None
        key = key_of("shop", number)
        records += [(key, record) for record in (*own[1:], own[0], *map(_answers, asked))]
        results[number] = ended.result
        wanted |= {
            ("shop", verdict.snapshot.id or 0, verdict.predicate): verdict_of(verdict_row(verdict))
            for verdict in ended.result.verdicts
        }
    with object_storage() as store:
        cluster = Cluster(f"s3://{BUCKET}/records")
        asyncio.run(_put(cluster, records))
        out = f"s3://{BUCKET}/out"
        # in a process of its own: a Spark that an earlier test has started does not know the address of the store
        command = [sys.executable, "-m", "detector", "assemble", "--kafka", cluster.servers, "--out", out, "--once"]
        command += ["--state", str(tmp_path / "state"), "--master", "local[2]", "--partitions", "2"]
        for _ in range(2):  # the second time there is nothing left to do
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
            assert done.returncode == 0, done.stderr
            assert verdict_rows(store, f"{BUCKET}/out/verdicts") == wanted
        said = Topic(cluster, RESULTS).listed()
        told = [message_of(row["value"]) for each in said for row in Topic(cluster, RESULTS).read(each.path).to_pylist()]
    came = {each.assembled.snapshot.ref.id: each.verdicts for _, each in told if isinstance(each, Result)}
    assert came == {number: result.verdicts for number, result in results.items()}
    tally = json.loads((tmp_path / "state" / "tally.json").read_text())["now"]
    assert (tally["begun"], tally["judged"], tally["given_up"]) == (len(MADE), len(MADE), 0)
    assert tally["verdicts"] == len(wanted)


async def _put(cluster: Cluster, records: list[tuple[str, bytes]]) -> None:
    producers = [RecordProducer(cluster) for _ in range(3)]
    await asyncio.gather(*(producers[at % 3].put(REPORTS, key, value) for at, (key, value) in enumerate(records)))
    await asyncio.gather(*(asyncio.to_thread(each.close) for each in producers))
