"""A fleet behind collectors, a broker and Spark, each killed in turn: no verdict is lost, duplicated or wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pyarrow.parquet as pq
import pytest

from detector.core.registry import predicate_names
from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.collector.machines import Machines
from tests.free_ports import free_port
from tests.service.conftest import Deadlock, FakeProcess

pytestmark = [pytest.mark.longer, pytest.mark.not_in_ci, pytest.mark.timeout(1500)]  # minutes, and a broker from Maven
ASK_SECONDS_MAX = 300.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.close()


class Fleet:
    """Two processes, each behind its own collector, and the coordinator that answers for them."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        kafka = machines.start_broker()
        self.coordinator, self.first, self.second = free_port(), free_port(), free_port()
        machines.start_ours(
            "coordinator", "serve", "--kafka", kafka, "--port", str(self.coordinator), "--http-port", "0",
            "--period-seconds", "0", "--lease-seconds", "600", "--assembly-seconds-max", str(ASK_SECONDS_MAX), "--data", "data",
        )  # fmt: skip
        for name, port in (("first", self.first), ("second", self.second)):
            address = f"127.0.0.1:{self.coordinator}"
            machines.start_ours(name, "collect", "--coordinator", address, "--kafka", kafka, "--port", str(port))
        spark = ("--master", "local[2]", "--partitions", "2")
        machines.start_ours("assembly", "assemble", "--kafka", kafka, "--out", "out", *spark)
        self.a, self.b = FakeProcess("a"), FakeProcess("b")

    async def join(self) -> None:
        await joined(self.a, self.first)
        await joined(self.b, self.second)

    async def ask(self, predicate: str = "deadlock") -> snapshot_pb2.Verdict:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.coordinator}") as channel:
            stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            answer = await stub.Ask(detector_pb2.AskRequest(predicate=predicate), timeout=ASK_SECONDS_MAX)
            verdict: snapshot_pb2.Verdict = answer.verdict
            return verdict

    async def stuck(self) -> list[str]:
        """The parties that are certainly deadlocked."""
        verdict = await self.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_TRUE, verdict
        return list(verdict.core)

    async def incidents(self) -> list[detector_pb2.Incident]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.coordinator}") as channel:
            stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            return list((await stub.ListIncidents(detector_pb2.ListIncidentsRequest(), timeout=30)).incidents)


async def joined(process: FakeProcess, port: int) -> None:
    """Dial until welcomed, as an agent does."""
    async with asyncio.timeout(120):
        while True:
            await process.connect(f"127.0.0.1:{port}")
            if process.welcomed.is_set():
                return
            await process.kill()
            await asyncio.sleep(0.2)


async def test_no_verdict_is_lost_duplicated_or_wrong_whichever_process_is_killed(machines: Machines) -> None:
    fleet = Fleet(machines)
    await fleet.join()
    assert (await fleet.ask()).holds == snapshot_pb2.HOLDS_FALSE
    core = Deadlock(fleet.a, fleet.b).core
    assert await fleet.stuck() == core
    (incident,) = await fleet.incidents()

    asked = [asyncio.create_task(fleet.stuck()) for _ in range(3)]
    await asyncio.sleep(1.0)
    machines.kill("assembly")  # driver and executors
    machines.start("assembly")
    assert await asyncio.gather(*asked) == [core] * 3

    asked = [asyncio.create_task(fleet.stuck())]
    machines.kill_worker("assembly")
    assert await asyncio.gather(*asked) == [core]

    machines.kill("second")
    await asyncio.wait_for(fleet.b.ended.wait(), 60)
    machines.start("second")
    await joined(fleet.b, fleet.second)
    assert await fleet.stuck() == core

    machines.kill("broker")
    machines.start("broker")
    assert await eventually_stuck(fleet) == core

    machines.kill("coordinator")
    await asyncio.wait_for(asyncio.gather(fleet.a.ended.wait(), fleet.b.ended.wait()), 60)
    machines.start("coordinator")
    await fleet.join()
    assert await fleet.stuck() == core
    assert [each.id for each in await fleet.incidents()] == [incident.id]

    assert machines.end("assembly") == 0
    check_table(machines.folder / "out" / "verdicts", core)
    await asyncio.gather(fleet.a.kill(), fleet.b.kill())


async def eventually_stuck(fleet: Fleet) -> list[str]:
    """The broker comes back in its own time: until then answers are UNDETERMINED, never FALSE."""
    async with asyncio.timeout(ASK_SECONDS_MAX):
        while (verdict := await fleet.ask()).holds != snapshot_pb2.HOLDS_TRUE:
            assert verdict.holds == snapshot_pb2.HOLDS_UNDETERMINED, verdict
    return list(verdict.core)


def check_table(folder: Path, core: list[str]) -> None:
    """Each snapshot of the table once, by every predicate; and of the deadlock what the coordinator said."""
    rows = [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    times = Counter((row["archive"], row["snapshot"], row["scope"], row["predicate"]) for row in rows)
    assert set(times.values()) == {1}
    snapshots = {row["snapshot"] for row in rows}
    assert times.keys() == {("default", snapshot, "all", name) for snapshot in snapshots for name in predicate_names()}
    deadlocks = {row["snapshot"]: row for row in rows if row["predicate"] == "deadlock"}
    first = min(deadlocks)
    assert deadlocks[first]["holds"] == "false"
    assert all(
        row["holds"] == "true" and row["core"] == core for at, row in deadlocks.items() if at > first and not row["missing"]
    )
    assert sum(row["holds"] == "true" for row in deadlocks.values()) >= 6
