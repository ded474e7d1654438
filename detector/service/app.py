"""The service as a whole: builds its parts, starts them in order, and shuts them down."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from detector.core.predicate import Predicate
from detector.ops.address import address_of, bare_host, is_loopback, why_not_bound
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.assembly_bus import AssemblyBus
from detector.service.cure.audit import Audit
from detector.service.cure.cures import Cures
from detector.service.detection.driver import Driver
from detector.service.detection.evaluator import Evaluator, installed_predicates
from detector.service.detection.incident.incident_labels import IncidentLabels
from detector.service.detection.incident.incidents import Incident, Incidents
from detector.service.detection.stacks import StacksRequests
from detector.service.grpc_api.access_log import AccessLog
from detector.service.grpc_api.agent_service import AGENT_SERVICE, AgentServicer
from detector.service.grpc_api.archive_service import ArchiveService
from detector.service.grpc_api.detector_service import DETECTOR_SERVICE, DetectorServicer
from detector.service.grpc_api.port import CALLS_PER_CONNECTION, AddressInUseError, ServedElsewhere, bind, files_of, new_server
from detector.service.grpc_api.relay import COLLECTOR_SERVICE, CollectorServicer
from detector.service.grpc_api.roles import Roles
from detector.service.grpc_api.security import Guard
from detector.service.kubernetes.api import ApiServer
from detector.service.kubernetes.pod_events import PodEvents
from detector.service.kubernetes.service_pods import ServicePods
from detector.service.metrics import Metrics
from detector.service.notify import Notifier
from detector.service.settings import Settings
from detector.service.standby import first_of, leadership_of
from detector.service.storage.archive_sink import ArchiveSink
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.storage.sqlite import DirectoryInUseError, Retention
from detector.service.web.proxy_user import ProxyUser
from detector.service.web.server import Web
from stilltrue.v1 import detector_pb2_grpc

_STOP_SECONDS = 0.5
_STORE_SECONDS = 10.0
"""Time to flush the store and the archive at shutdown, even on slow disks."""
_MESSAGE_BYTES_BEYOND = 2**20
"""How far a message may exceed the report limit and still get our own error; gRPC refuses larger ones without reading them."""
GC_THRESHOLDS = (10_000, 10, 50)
"""Makes full collections rare: one walks over every report of a fleet and blocks the process for tenths of a second.

Reports hold no cycles; the few cycles of tasks and exceptions die young, in the short collections.
"""
_EXPIRE_PER_LEASE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses that the service listens on."""

    host: str
    port: int
    http_host: str
    http_port: int

    @property
    def grpc(self) -> str:
        """``HOST:PORT`` of gRPC."""
        return str(address_of(self.host, self.port))

    @property
    def http(self) -> str:
        """``HOST:PORT`` of HTTP."""
        return str(address_of(self.http_host, self.http_port))


@contextlib.asynccontextmanager
async def running(settings: Settings, predicates: list[Predicate] | None = None) -> AsyncIterator[Listening]:
    """Run the service within the block. ``predicates``: those to evaluate; None: all installed ones.

    Raises :class:`~detector.service.grpc_api.port.AddressInUseError`,
    :class:`~detector.service.storage.sqlite.DirectoryInUseError`, and
    :class:`~detector.service.kubernetes.api.NoClusterError` if a setting needs Kubernetes outside a cluster.
    """
    log, clock, metrics = Log("stilltrue"), Clock(), Metrics()
    evaluator = Evaluator(
        installed_predicates(settings.predicate_settings, log) if predicates is None else predicates,
        seconds_max=settings.evaluation_seconds_max,
        metrics=metrics,
        log=log,
    )
    snapshot_store = _snapshot_store(settings, clock, metrics, log)
    notifier = _notifier(settings, snapshot_store, log)
    incidents, watchers = _incidents(snapshot_store, metrics, log)
    archive_sink = ArchiveSink(
        directory=settings.data, bytes_max=settings.archive_bytes_max, metrics=metrics, log=log,
        compact_seconds_min=settings.compact_seconds_min, age_seconds_max=settings.retention_seconds_max,
    )  # fmt: skip
    bus = AssemblyBus(settings, log)
    driver = Driver(
        settings=settings, clock=clock, evaluator=evaluator, incidents=incidents, snapshot_store=snapshot_store,
        metrics=metrics, log=log, archive_sink=archive_sink, put=bus.put,
    )  # fmt: skip
    service_pods, pod_events = _service_pods(driver, log), _pod_events(settings, driver, snapshot_store, log)
    labels = IncidentLabels(metrics, driver.service_of)
    watchers += [labels.changed, archive_sink.incident, *(one.changed for one in (notifier, pod_events) if one is not None)]
    _expect_verdicts(metrics, evaluator, settings)
    roles = _roles(settings, log)
    audit, stacks, archive_service = Audit(settings.data), StacksRequests(), ArchiveService(settings)
    cures = Cures(
        driver=driver,
        snapshot_store=snapshot_store,
        clock=clock,
        log=log,
        audit=audit,
        allowed=settings.allow_cure,
    )
    agents = AgentServicer(
        driver=driver, cures=cures, stacks=stacks, settings=settings, clock=clock, metrics=metrics, log=log, roles=roles
    )
    questions = DetectorServicer(
        driver=driver, cures=cures, audit=audit, clock=clock, stacks=stacks, snapshot_store=snapshot_store,
        archive_service=archive_service, settings=settings, predicates=evaluator.names, roles=roles,
    )  # fmt: skip
    access_log = AccessLog(settings.data, clock, log) if settings.access_log else None
    guard = Guard(roles, metrics.report_refused, log, access_log)
    server, healthy = _server(settings, agents, questions, [guard])
    web = Web(
        driver=driver, cures=cures, operators=roles, on_loopback=is_loopback(settings.http_host),
        snapshot_store=snapshot_store, archived=archive_service.snapshot, metrics=metrics, log=log, hosts=settings.http_names,
        roles=None if settings.http_open else roles, base_path=settings.base_path,
        external_url=settings.external_url, trace_url=settings.trace_url,
        proxy_user=ProxyUser(settings.proxy_user_header, settings.proxy_networks), access_log=access_log,
    )  # fmt: skip
    try:
        bus.listen(driver)
        port, http_port = _bind(server, settings, log), await _bind_web(web, settings)
        await server.start()
        for service in ("", _own_service(settings), DETECTOR_SERVICE):
            await healthy.set(service, health_pb2.HealthCheckResponse.SERVING)
        tasks = [asyncio.create_task(_expire(driver, settings.lease_seconds / _EXPIRE_PER_LEASE, log))]
        tasks += [asyncio.create_task(one.run()) for one in (service_pods, pod_events, roles) if one is not None]
        listening = Listening(host=settings.host, port=port, http_host=settings.http_host, http_port=http_port)
        try:
            yield listening
        finally:
            for task in tasks:
                task.cancel()
            await healthy.enter_graceful_shutdown()
            cures.close()
            await driver.close()
    finally:
        await web.stop()
        await server.stop(_STOP_SECONDS)
        for each in (archive_service, evaluator, guard):
            each.close()
        await asyncio.to_thread(bus.close)
        if notifier is not None:
            await asyncio.to_thread(notifier.close, _STOP_SECONDS)
        await asyncio.to_thread(snapshot_store.close, _STORE_SECONDS)
        await asyncio.to_thread(archive_sink.close, _STORE_SECONDS)
        log.info("stopped")


async def serve(settings: Settings, started: Callable[[Listening], None]) -> None:
    """Run the service until SIGINT or SIGTERM; ``started`` is called with its addresses.

    With a standby or a Lease, it first waits for its turn (:mod:`detector.service.standby`).
    """
    gc.collect()
    gc.freeze()  # no collection visits imported objects again, which would delay verdicts
    gc.set_threshold(*GC_THRESHOLDS)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with leadership_of(settings, Log("stilltrue")) as leadership:
        while not stop.is_set():
            await leadership.acquired(stop)
            if stop.is_set():
                return
            try:
                async with running(settings) as listening:
                    started(listening)
                    await first_of(stop.wait(), leadership.lost())
            except DirectoryInUseError:
                if not leadership.waits:
                    raise  # otherwise another standby was faster


def _expect_verdicts(metrics: Metrics, evaluator: Evaluator, settings: Settings) -> None:
    for name in evaluator.names:
        for scope in ("all", *(scope.name for scope in settings.scopes)):
            metrics.expect(name, scope)


def _snapshot_store(settings: Settings, clock: Clock, metrics: Metrics, log: Log) -> SnapshotStore:
    bounds = Retention(
        summaries_max=settings.store_summaries_max,
        documents_max=settings.store_documents_max,
        documents_pinned_max=settings.store_documents_pinned_max,
        bytes_max=settings.store_bytes_max,
        incidents_max=settings.store_incidents_max,
        age_seconds_max=settings.retention_seconds_max,
    )
    return SnapshotStore(
        directory=settings.data, bounds=bounds, queue_max=settings.store_queue_max, clock=clock, metrics=metrics, log=log
    )


def _notifier(settings: Settings, snapshot_store: SnapshotStore, log: Log) -> Notifier | None:
    if not settings.notify_url:
        return None
    known = [incident.id for incident in snapshot_store.open_incidents]
    return Notifier(settings.notify_url, log=log, known=known, pages=settings.external_url)


def _incidents(snapshot_store: SnapshotStore, metrics: Metrics, log: Log) -> tuple[Incidents, list[Callable[[Incident], None]]]:
    """The incidents, and the list of callbacks that each change is passed to, which the caller extends."""
    watchers: list[Callable[[Incident], None]] = []

    def opened(incident: Incident) -> None:
        metrics.incident_opened(incident.predicate)
        log.warning(
            "incident opened", incident=incident.id, predicate=incident.predicate, core=", ".join(incident.core),
            snapshot=incident.first_snapshot, text=incident.text,
        )  # fmt: skip

    def count(predicate: str) -> None:
        metrics.incidents_open(predicate, incidents.count(predicate))

    def changed(incident: Incident) -> None:
        closed_before = snapshot_store.find_incident(incident.id) is not None
        snapshot_store.incident(incident)
        count(incident.predicate)
        for watcher in watchers:
            watcher(incident)
        if not incident.open and not closed_before:  # a cure adds its result to an incident that has closed
            log.info("incident closed", incident=incident.id, ending=incident.ending)

    incidents = Incidents(
        open_ones=snapshot_store.open_incidents, changed=changed, opened=opened, find=snapshot_store.find_incident
    )
    for incident in incidents.open_ones():
        count(incident.predicate)
    return incidents, watchers


def _roles(settings: Settings, log: Log) -> Roles | None:
    asked = settings.tls_client_ca_file is not None
    return None if settings.roles_file is None else Roles(settings.roles_file, log, asks_for_certificates=asked)


def _service_pods(driver: Driver, log: Log) -> ServicePods | None:
    services = driver.expected.services
    return ServicePods(ApiServer.of_cluster(os.environ), services, driver.expected.found, log) if services else None


def _pod_events(settings: Settings, driver: Driver, snapshot_store: SnapshotStore, log: Log) -> PodEvents | None:
    if not settings.event_namespaces:
        return None
    server = ApiServer.of_cluster(os.environ, wanted="--kubernetes-events", instead="")
    known = [incident.id for incident in snapshot_store.open_incidents]
    return PodEvents(server, settings.event_namespaces, driver.roster.get, log, known=known, pages=settings.external_url)


def _server(
    settings: Settings,
    agents: AgentServicer,
    questions: DetectorServicer,
    guards: list[grpc.aio.ServerInterceptor],
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    most = settings.asks_per_connection_max + settings.watchers_per_connection_max + CALLS_PER_CONNECTION
    server = new_server(settings.report_bytes_max + _MESSAGE_BYTES_BEYOND, guards, calls_per_connection_max=most)
    healthy = health.aio.HealthServicer()
    if settings.kafka:
        collectors = CollectorServicer(
            agents.serve, settings.pending_snapshots_max, Log("stilltrue"), fleet=settings.fleet, topics=settings.kafka_topics
        )
        dialled = "this is a coordinator (serve --kafka): agents connect to one of its collectors (stilltrue collect)"
        handlers = (collectors.handler(), ServedElsewhere(AGENT_SERVICE, dialled))
    else:
        relayed = "this detector is not a coordinator: start it with --kafka, or connect the agents to it directly"
        handlers = (agents.handler(), ServedElsewhere(COLLECTOR_SERVICE, relayed))
    server.add_generic_rpc_handlers(handlers)
    detector_pb2_grpc.add_DetectorServiceServicer_to_server(questions, server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    names = (_own_service(settings), DETECTOR_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return server, healthy


def _own_service(settings: Settings) -> str:
    """The name of the gRPC service for agents, or for collectors."""
    return COLLECTOR_SERVICE if settings.kafka else AGENT_SERVICE


def _bind(server: grpc.aio.Server, settings: Settings, log: Log) -> int:
    files = files_of(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    return bind(server, settings.host, settings.port, files, log)


async def _bind_web(web: Web, settings: Settings) -> int:
    try:
        return await web.start(bare_host(settings.http_host), settings.http_port)
    except OSError as error:
        reason, address = why_not_bound(error), address_of(settings.http_host, settings.http_port)
        text = f"cannot listen on {address}: {reason}; choose another --http-host or --http-port (0: any free port)"
        raise AddressInUseError(text) from None


async def _expire(driver: Driver, seconds: float, log: Log) -> None:
    while True:
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        late = time.monotonic() - begun - seconds
        try:
            driver.expire_leases(late if late > seconds else 0.0)
        except Exception as error:  # noqa: BLE001 - leases must keep expiring
            log.failure("leases not checked", error)
