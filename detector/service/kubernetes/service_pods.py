"""The expected members on Kubernetes: the pods of a Service, polled from the API server.

Rules:

1. A Service's pods are those of its EndpointSlices, ready or not: a starting pod is expected, too.
2. If the API server does not answer, the last known pods stay valid for :data:`STALE_SECONDS`; then the pods are unknown,
   and answers about all members say so.
3. The pods of a Service without any pod are unknown, too: its name may be wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from detector.ops.logs import Log
from detector.service.detection.membership.expected import Pods
from detector.service.kubernetes.api import Api, ApiError, ApiServer

READ_SECONDS = 5.0
"""The polling interval."""
STALE_SECONDS = 30.0
SLICES_PER_PAGE = 500


class ServicePods:
    """Polls the pods of ``services`` (``NAMESPACE/NAME``), and calls ``found`` with each result."""

    def __init__(
        self, server: ApiServer, services: Iterable[str], found: Callable[[str, Pods], None], log: Log,
        read_seconds: float = READ_SECONDS, stale_seconds: float = STALE_SECONDS,
    ) -> None:  # fmt: skip
        self._server = server
        self._found = found
        self._log = log
        self._read_seconds = read_seconds
        self._stale_seconds = stale_seconds
        self._read_at = {service: float("-inf") for service in services}
        self._failures: dict[str, str] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        async with Api(self._server) as api:
            while True:
                await asyncio.gather(*(self._read(api, service) for service in self._read_at))
                await asyncio.sleep(self._read_seconds)

    async def _read(self, api: Api, service: str) -> None:
        try:
            names = await self._pods(api, *service.split("/"))
        except ApiError as error:
            self._failed(service, f"{error}{_hint(error.status)}")
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._failed(service, f"{type(error).__name__}: {error}")
            return
        self._read_at[service] = time.monotonic()
        if self._failures.pop(service, None) is not None:
            self._log.info("pods of service read again", service=service, pods=len(names))
        self._found(service, Pods(names=names) if names else Pods(unknown="it has no pods: check its name"))

    def _failed(self, service: str, reason: str) -> None:
        if self._failures.get(service) != reason:
            self._failures[service] = reason
            self._log.warning("pods of service not read", service=service, reason=reason)
        if time.monotonic() - self._read_at[service] > self._stale_seconds:
            self._found(service, Pods(unknown=reason))

    async def _pods(self, api: Api, namespace: str, name: str) -> frozenset[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        wanted = {"labelSelector": f"kubernetes.io/service-name={name}", "limit": str(SLICES_PER_PAGE)}
        found: set[str] = set()
        while True:
            page = await api.get(path, wanted)
            for piece in page["items"] or ():
                found.update(_pod_names(piece.get("endpoints") or ()))
            rest = (page.get("metadata") or {}).get("continue")
            if not rest:
                return frozenset(found)
            wanted["continue"] = rest


def _pod_names(endpoints: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for endpoint in endpoints:
        target = endpoint.get("targetRef") or {}
        if target.get("kind") == "Pod":
            yield str(target["name"])


def _hint(status: int | None) -> str:
    return (
        ": its account may not list endpointslices there (chart: detector.expect)"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        else ""
    )
