"""A coordinator with collectors in this process, for the processes that the service's tests play."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.assembly.cluster import Cluster
from detector.collector.app import Collecting, Listening
from detector.collector.app import running as collecting
from detector.collector.relay import Coordinator
from detector.ops.address import Address
from detector.service.app import running
from detector.service.settings import Settings
from stilltrue.runtime.membership.credentials import Security
from tests.collector.kafka_in_memory import KafkaInMemory
from tests.service.conftest import Deadlock, Detector, FakeProcess

KAFKA = "127.0.0.1:9092"


class Collected(Detector):
    """A coordinator; processes join by way of its collectors, in turn."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.coordinator = self.address
        self.collectors: list[str] = []
        self.metrics: list[str] = []
        """Where each collector's are."""

    async def join(self, *processes: FakeProcess) -> None:
        for number, process in enumerate(processes):
            self.address = self.collectors[number % len(self.collectors)]
            await super().join(process)
            async with asyncio.timeout(20):
                while not process.welcomed.is_set() and process.status is grpc.StatusCode.UNAVAILABLE:
                    await process.kill()
                    await process.connect(self.address)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> KafkaInMemory:
    made = KafkaInMemory()
    monkeypatch.setitem(sys.modules, "detector.assembly.kafka", made)
    return made


@contextlib.asynccontextmanager
async def collected(data: Path, *, collectors: int = 2, **settings: Any) -> AsyncIterator[Collected]:
    values: dict[str, Any] = {"port": 0, "http_port": 0, "data": data, "period_seconds": 0.0, "kafka": KAFKA}
    async with contextlib.AsyncExitStack() as stack:
        listening = await stack.enter_async_context(running(Settings(**values | settings)))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"{listening.host}:{listening.port}"))
        coordinator = Collected(listening, channel)
        for _ in range(collectors):
            made = await stack.enter_async_context(collector_of(coordinator.coordinator, (values | settings)["kafka"]))
            coordinator.collectors.append(made.address)
            coordinator.metrics.append(made.metrics)
        stack.push_async_callback(coordinator.close)
        yield coordinator


@contextlib.asynccontextmanager
async def collector_of(
    address: str, kafka: str = KAFKA, *, fleet: str = "default", topics: str = "stilltrue"
) -> AsyncIterator[Listening]:
    settings = Collecting(
        host="127.0.0.1", port=0, coordinator=Coordinator(address=address, security=Security()),
        cluster=Cluster(kafka, topics=topics), fleet=fleet, metrics=Address(host="127.0.0.1", port=0),
    )  # fmt: skip
    async with collecting(settings) as listening:
        yield listening


@pytest.fixture
def start_collected(kafka: KafkaInMemory) -> Any:
    return collected


@pytest.fixture
def process() -> type[FakeProcess]:
    return FakeProcess


@pytest.fixture
def deadlock() -> type[Deadlock]:
    return Deadlock
