"""What the sidecar tells of itself: whether it is well, what it covers, what it cannot see, and its counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from detector.sidecar.admin import METRICS, TEXT, Page, Pages, as_json, exposition, ok
from detector.sidecar.attribution import Attribution
from detector.sidecar.settings import Settings
from detector.sidecar.tracking.program import DISTRUSTED, Program
from stilltrue.agent import Agent

PROGRAM_SECONDS_MAX = 1.0


def pages(settings: Settings, agent: Agent, program: Program, connections: Callable[[], int]) -> Pages:
    """The admin pages by path; ``connections`` counts those that are relayed."""

    async def healthz() -> Page:
        return ok("ok\n")

    async def readyz() -> Page:
        address = settings.program
        try:
            async with asyncio.timeout(PROGRAM_SECONDS_MAX):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
        except (OSError, TimeoutError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"the program at {address} does not accept connections: {error}\n"
        return ok("ok\n")

    async def metadata() -> Page:
        return as_json(describe(settings, agent, program))

    async def metrics() -> Page:
        return ok(_metrics(agent, program, connections()), METRICS)

    return {"/healthz": healthz, "/readyz": readyz, "/metadata": metadata, "/metrics": metrics}


def describe(settings: Settings, agent: Agent, program: Program) -> dict[str, object]:
    """Who this is, where its calls go, and its coverage: what counts as active because nobody can tell."""
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
        "program": str(settings.program),
        "upstreams": {name: str(address) for name, address in sorted(settings.upstreams.named.items())},
        "upstream_by_authority": settings.upstreams.by_authority,
        "coverage": {
            "workers": program.pool.size,
            "workers_told": settings.workers,
            "outbound_calls": program.outbound,
            "outbound_calls_of_unknown_caller": unknown,
            "methods_not_awaited": program.distrusted,
        },
    }


def _metrics(agent: Agent, program: Program, connections: int) -> str:
    live = agent.live
    served, queued = program.pool.counts
    callers = [
        ({"caller": how}, float(program.callers[how])) for how in sorted([*(how.value for how in Attribution), DISTRUSTED])
    ]
    return exposition(
        [
            ("stilltrue_sidecar_inbound_calls_total", "counter", "Calls that came to the program.", [({}, program.inbound)]),
            (
                "stilltrue_sidecar_outbound_calls_total",
                "counter",
                "Calls that the program made, by how their caller was found; but for party and trace it counts as active.",
                callers,
            ),
            (
                "stilltrue_sidecar_inbound_calls",
                "gauge",
                "Calls in progress; queued is also where nobody knows.",
                [({"state": "served"}, served), ({"state": "queued"}, queued)],
            ),
            ("stilltrue_sidecar_workers", "gauge", "Size of the program's pool; 0 is unknown.", [({}, program.pool.size or 0)]),
            (
                "stilltrue_sidecar_methods_not_awaited",
                "gauge",
                "Methods whose calls do not count as waited for.",
                [({}, len(program.distrusted))],
            ),
            ("stilltrue_sidecar_connections", "gauge", "Connections that are relayed.", [({}, connections)]),
            ("stilltrue_sidecar_faults_total", "counter", "Failures of our own; the calls went on.", [({}, live.faults)]),
            ("stilltrue_sidecar_reports_dropped_total", "counter", "Reports that could not be sent.", [({}, live.dropped)]),
        ]
    )
