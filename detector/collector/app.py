"""Assembles, starts and stops the collector: a server for agents, a stream to the coordinator, a producer of records."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from detector.assembly.cluster import REPORTS, Cluster, RecordsUnavailableError, client
from detector.assembly.records import key_of, report_record
from detector.collector.agent_stream import CollectedStream
from detector.collector.intake import Intake
from detector.collector.metrics import CollectorMetrics, Counts
from detector.collector.relay import Coordinator, Relay
from detector.ops.address import Address, address_of, is_loopback, why_not_bound
from detector.ops.exposition import exposed
from detector.ops.logs import Log
from detector.service.grpc_api.agent_service import AGENT_SERVICE
from detector.service.grpc_api.agent_stream import Context
from detector.service.grpc_api.detector_service import DETECTOR_SERVICE
from detector.service.grpc_api.port import ServedElsewhere, bind, files_of, new_server

if TYPE_CHECKING:
    from detector.assembly.kafka import RecordProducer

Connect = Callable[[object, Context], Awaitable[None]]
_MESSAGE_HEADROOM = 4
_STOP_SECONDS = 0.5
_CHECK_AGAIN_SECONDS = 2.0
_LOG_AGAIN_SECONDS = 60.0
"""While records cannot be written, the reason is logged this often."""


class CollectorRefusedError(Exception):
    """The collector's settings are invalid; the message is one line that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting:
    """The settings of a collector. ``certificate``, ``key`` and ``client_ca`` are for the agents' port."""

    host: str
    port: int
    coordinator: Coordinator
    cluster: Cluster
    fleet: str
    report_entries_max: int = 50_000
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    allow_plaintext: bool = False
    metrics: Address | None = None

    def __post_init__(self) -> None:
        """Validate the settings. Raises :class:`CollectorRefusedError`."""
        if (self.certificate is None) is not (self.key is None):
            raise CollectorRefusedError("--agents-cert-file needs --agents-key-file, and vice versa")
        if self.certificate is None and self.client_ca is not None:
            raise CollectorRefusedError("--agents-ca-file needs --agents-cert-file and --agents-key-file")
        if self.certificate is None and not is_loopback(self.host) and not self.allow_plaintext:
            text = f"--host: {self.host} is not a local address: it needs --agents-cert-file or --allow-plaintext"
            raise CollectorRefusedError(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The address (``HOST:PORT``) for agents, and the URL of the metrics, if they are served."""

    address: str
    metrics: str = ""

    def __str__(self) -> str:
        return f"grpc={self.address}" + (f" metrics={self.metrics}" if self.metrics else "")


@contextlib.asynccontextmanager
async def running(settings: Collecting) -> AsyncIterator[Listening]:
    """Run the collector during the block.

    Raises :class:`CollectorRefusedError`, :class:`~detector.service.grpc_api.port.AddressInUseError` or
    :class:`~detector.assembly.cluster.RecordsUnavailableError`.
    """
    log = Log("stilltrue")
    producer: RecordProducer = client(settings.cluster).RecordProducer(settings.cluster)
    relay = Relay(settings.coordinator, log, fleet=settings.fleet, topics=settings.cluster.topics)
    counts = Counts()

    async def connect(_: object, context: Context) -> None:
        intake = Intake(
            report_bytes_max=settings.cluster.record_bytes_max,
            report_entries_max=settings.report_entries_max,
            pending_snapshots_max=relay.pending_snapshots_max,
        )

        async def keep(snapshot: int, data: bytes) -> None:
            await producer.put(REPORTS, key_of(settings.fleet, snapshot), report_record(data))

        await CollectedStream(context, relay=relay, intake=intake, keep=keep, counts=counts, log=log).serve()

    server, healthy = _server(settings, connect)
    relaying = asyncio.create_task(relay.run())
    checking = asyncio.create_task(_check_records(producer, log))
    exposing = contextlib.ExitStack()
    try:
        collector = CollectorMetrics(counts, relay.streams, relay.connected.is_set)
        metrics = _exposed(exposing, settings, collector)
        files = files_of(settings.certificate, settings.key, settings.client_ca)
        port = bind(server, settings.host, settings.port, files, log)
        await server.start()
        await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
        yield Listening(address=str(address_of(settings.host, port)), metrics=metrics)
    finally:
        relaying.cancel()
        checking.cancel()
        await server.stop(_STOP_SECONDS)
        await asyncio.to_thread(producer.close)
        exposing.close()
        log.info("stopped")


async def collect(settings: Collecting, started: Callable[[Listening], None]) -> None:
    """Run until SIGINT or SIGTERM; call ``started`` with the addresses."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings) as listening:
        started(listening)
        await stop.wait()


async def _check_records(producer: RecordProducer, log: Log) -> None:
    """Until records can be written for the first time, log why they cannot; from then on, reports that are not kept say so."""
    loop = asyncio.get_running_loop()
    logged_at = None
    while True:
        try:
            await asyncio.to_thread(producer.check)
        except RecordsUnavailableError as error:
            if logged_at is None or loop.time() - logged_at >= _LOG_AGAIN_SECONDS:
                logged_at = loop.time()
                log.warning("records cannot be written", reason=str(error), consequence="members that report here are missing")
            await asyncio.sleep(_CHECK_AGAIN_SECONDS)
        else:
            if logged_at is not None:
                log.info("records can be written")
            return


def _exposed(exposing: contextlib.ExitStack, settings: Collecting, collector: CollectorMetrics) -> str:
    """Serve ``/metrics`` until ``exposing`` ends; return its URL, or an empty string if metrics are off."""
    if settings.metrics is None:
        return ""
    host = settings.metrics.host
    try:
        port = exposing.enter_context(exposed(collector, host, settings.metrics.port))
    except OSError as error:
        raise CollectorRefusedError(f"--metrics: cannot listen on {settings.metrics}: {why_not_bound(error)}") from None
    return f"http://{Address(host=host, port=port)}/metrics"


def _server(
    settings: Collecting, connect: Callable[[object, Context], object]
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = new_server(_MESSAGE_HEADROOM * settings.cluster.record_bytes_max)
    healthy = health.aio.HealthServicer()
    handlers: dict[str, Any] = {"Connect": grpc.stream_stream_rpc_method_handler(connect, None, None)}
    asked = f"this is a collector: questions go to its coordinator, {settings.coordinator.address}"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(AGENT_SERVICE, handlers), ServedElsewhere(DETECTOR_SERVICE, asked))
    )
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    return server, healthy
