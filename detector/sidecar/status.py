"""The sidecar's admin pages: health, readiness, coverage and metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from detector.ops.http import Answer
from detector.sidecar.attribution import Attribution
from detector.sidecar.settings import SidecarSettings
from detector.sidecar.tracking.program import DISTRUSTED, Program
from stilltrue.agent import Agent

PROGRAM_SECONDS_MAX = 1.0
PREFIX = "stilltrue_sidecar_"
PAGES = ("/healthz", "/readyz", "/metadata", "/metrics")


class Status:
    """Serves the admin pages: /healthz, /readyz, /metadata (JSON) and /metrics (Prometheus text format); / lists them."""

    def __init__(self, settings: SidecarSettings, agent: Agent, program: Program, connections: Callable[[], int]) -> None:
        """``connections`` returns the number of relayed connections."""
        self._settings = settings
        self._agent = agent
        self._program = program
        self._registry = CollectorRegistry()
        self._registry.register(SidecarCollector(agent, program, connections))

    async def answer(self, request: web.BaseRequest) -> Answer | None:
        """Return the page at the request's path, or None."""
        match request.path:
            case "/":
                return Answer(body="\n".join((*PAGES, "")))
            case "/healthz":
                return Answer(body="ok\n")
            case "/readyz":
                return await self._readiness()
            case "/metadata":
                text = json.dumps(describe(self._settings, self._agent, self._program), indent=2)
                return Answer(body=text + "\n", content_type="application/json")
            case "/metrics":
                return Answer(body=generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST)
            case _:
                return None

    async def _readiness(self) -> Answer:
        address = self._settings.program
        try:
            async with asyncio.timeout(PROGRAM_SECONDS_MAX):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
        except (OSError, TimeoutError) as error:
            text = f"the program at {address} does not accept connections: {error}\n"
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=text)
        return Answer(body="ok\n")


def describe(settings: SidecarSettings, agent: Agent, program: Program) -> dict[str, object]:
    """Describe the process, the destinations of its calls, and its coverage: what counts as active for lack of evidence."""
    unknown = sum(
        count for how, count in program.callers.items() if how not in (Attribution.PARTY.value, Attribution.TRACE.value)
    )
    return {
        "process": {
            "service": agent.process.service,
            "instance": agent.process.instance,
            "incarnation": agent.process.incarnation,
        },
        "detector": agent.settings.detector,
        "connected": agent.wait_until_joined(0),
        "program": str(settings.program),
        "upstreams": {name: str(address) for name, address in sorted(settings.upstreams.named.items())},
        "upstream_by_authority": settings.upstreams.by_authority,
        "coverage": {
            "workers": program.pool.size,
            "workers_told": settings.workers,
            "outbound_calls": program.outbound,
            "outbound_calls_of_unknown_caller": unknown,
            "outbound_calls_of_unknown_caller_outstanding": len(program.long_unattributed),
            "blind_spots": list(program.counts()["blind"]),
            "methods_not_awaited": program.distrusted,
        },
    }


class SidecarCollector(Collector):
    """Collects the sidecar's metrics on each scrape."""

    def __init__(self, agent: Agent, program: Program, connections: Callable[[], int]) -> None:
        self._agent = agent
        self._program = program
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of every metric."""
        live, program = self._agent.live, self._program
        served, queued = program.pool.counts
        yield _counter("inbound_calls", "Calls to the program", program.inbound)
        outbound = CounterMetricFamily(
            f"{PREFIX}outbound_calls",
            "Calls by the program, by how their caller was found; callers not found by party or trace count as active",
            labels=["caller"],
        )
        for how in sorted([*(each.value for each in Attribution), DISTRUSTED]):
            outbound.add_metric([how], program.callers[how])
        yield outbound
        in_progress = GaugeMetricFamily(
            f"{PREFIX}inbound_calls",
            "Calls to the program in progress; queued includes those that may be served",
            labels=["state"],
        )
        in_progress.add_metric(["served"], served)
        in_progress.add_metric(["queued"], queued)
        yield in_progress
        yield _gauge("workers", "Size of the program's pool; 0: unknown", program.pool.size or 0)
        yield _gauge("methods_not_awaited", "Methods whose calls do not count as waited for", len(program.distrusted))
        yield _gauge(
            "outbound_calls_of_unknown_caller",
            "Outstanding calls by the program for more than a second whose caller is unknown: somebody may wait for them",
            len(program.long_unattributed),
        )
        yield _gauge("connections", "Relayed connections", self._connections())
        yield _counter("faults", "Internal failures; the calls went on", live.faults)
        yield _counter("reports_dropped", "Reports that could not be sent", live.dropped)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)
