"""A collector without its coordinator says so once, and again when it has lost it once more. Wrong names are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.assembly.cluster import RecordsUnavailableError
from detector.collector import app, relay
from detector.collector.relay import Coordinator, Relay
from detector.ops.logs import Log
from stilltrue.runtime.membership.credentials import Security
from stilltrue.v1 import collector_pb2 as pb
from tests.collector.conftest import collected, collector_of
from tests.collector.kafka_in_memory import KafkaInMemory
from tests.service.conftest import detecting


class Attempts:
    """Logs like :class:`Log`, and counts the attempts to connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = Relay._connect

        async def counted(self_: Relay, address: str) -> None:
            self.count += 1
            await connect(self_, address)

        monkeypatch.setattr(Relay, "_connect", counted)
        monkeypatch.setattr(relay, "_RETRY_SECONDS", 0.02)

    async def more(self, number: int) -> None:
        wanted = self.count + number
        while self.count < wanted:
            await asyncio.sleep(0.01)


async def coordinator(port: int) -> tuple[grpc.aio.Server, int]:
    """A server that accepts collectors, and says no more; on ``port``, or any free one if that is 0."""

    async def accept(_requests: object, _context: object) -> AsyncIterator[pb.RelayResponse]:
        yield pb.RelayResponse(pending_snapshots_max=4)
        await asyncio.Event().wait()

    handler = grpc.stream_stream_rpc_method_handler(
        accept, request_deserializer=pb.RelayRequest.FromString, response_serializer=pb.RelayResponse.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("stilltrue.v1.CollectorService", {"Relay": handler}),)
    )
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


async def test_a_missing_coordinator_is_logged_once_and_again_after_it_was_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stilltrue-test-relay")
    attempts = Attempts(monkeypatch)
    server, port = await coordinator(0)
    await server.stop(None)
    one = Relay(
        Coordinator(address=f"127.0.0.1:{port}", security=Security()), Log("stilltrue-test-relay"), fleet="a", topics="b"
    )
    running = asyncio.create_task(one.run())
    try:
        await attempts.more(4)
        assert caplog.messages == ["no coordinator"]
        server, _ = await coordinator(port)
        await one.connected.wait()
        await server.stop(None)
        await attempts.more(4)
        assert caplog.messages == ["no coordinator", "coordinator found", "no coordinator"]
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(("wrong", "named"), [({"fleet": "other"}, "--fleet"), ({"topics": "other"}, "--kafka-topics")])
async def test_a_collector_of_another_fleet_is_told(
    wrong: dict[str, str], named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reports would be kept where nobody looks, and each answer would be undetermined a minute later."""
    records = str(tmp_path / "records")
    async with (
        collected(tmp_path / "data", collectors=0, kafka=records) as coordinator,
        collector_of(coordinator.coordinator, records, **wrong),
    ):
        async with asyncio.timeout(10):
            while "no coordinator" not in caplog.messages:
                await asyncio.sleep(0.01)
        (record,) = [record for record in caplog.records if record.message == "no coordinator"]
        fields: dict[str, str] = record.stilltrue_fields  # type: ignore[attr-defined]
        assert fields["status"] == "FAILED_PRECONDITION"
        assert fields["reason"].startswith(f"{named}: the coordinator's is '")
        assert "the collector's 'other'" in fields["reason"]


async def test_whoever_calls_the_wrong_process_is_told_which_is_right(kafka: KafkaInMemory, tmp_path: Path) -> None:
    async def refused(address: str, method: str) -> str:
        async with grpc.aio.insecure_channel(address) as channel:
            unary: Any = channel.unary_unary(f"/stilltrue.v1.{method}")
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await unary(b"")
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
        return failure.value.details() or ""

    async with collected(tmp_path / "collected", collectors=1) as coordinator, detecting(tmp_path / "alone") as detector:
        (collector,) = coordinator.collectors
        assert "agents connect to one of its collectors" in await refused(coordinator.coordinator, "AgentService/Connect")
        assert coordinator.coordinator in await refused(collector, "DetectorService/Ask")
        assert "start it with --kafka" in await refused(detector.address, "CollectorService/Relay")


async def test_a_collector_with_an_address_that_no_store_can_have_ends_with_an_error() -> None:
    with pytest.raises(RecordsUnavailableError, match="nosuch://x"):
        async with collector_of("127.0.0.1:1", "nosuch://x"):
            pytest.fail("it collects")


async def test_a_coordinator_says_that_it_is_connecting_before_kafka_answers(
    kafka: KafkaInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stilltrue")
    said: list[str] = []
    monkeypatch.setattr(kafka, "make_topics", lambda _: said.extend(caplog.messages))
    async with collected(tmp_path, collectors=0):
        assert "connecting to Kafka" in said


async def test_a_collector_whose_kafka_does_not_answer_says_so_at_its_start(
    kafka: KafkaInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "_CHECK_AGAIN_SECONDS", 0.02)
    caplog.set_level("INFO", "stilltrue")
    kafka.down = "Kafka at kafka:9092: Connection refused"

    def of_records() -> list[str]:
        return [message for message in caplog.messages if message.startswith("records can")]

    async with collector_of("127.0.0.1:1"), asyncio.timeout(10):
        while not of_records():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert of_records() == ["records cannot be written"]
        kafka.down = ""
        while len(of_records()) < 2:
            await asyncio.sleep(0.01)
        assert of_records() == ["records cannot be written", "records can be written"]
    (record,) = [each for each in caplog.records if each.message == "records cannot be written"]
    assert record.stilltrue_fields["reason"] == "Kafka at kafka:9092: Connection refused"  # type: ignore[attr-defined]
