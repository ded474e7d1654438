"""The expected members on Kubernetes: the pods of a Service, polled from the API server.

Rules:

1. A Service's pods are those of its EndpointSlices, ready or not: one that is starting is expected too.
2. An answer that cannot be had leaves what was known for :data:`STALE_SECONDS`; then the pods are unknown, and answers
   about all members say so.
3. A Service without any pod is not known either: the name may be wrong.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from detector.ops.logs import Log
from detector.service.detection.expected import Pods

READ_SECONDS = 5.0
"""The pause between two readings."""
STALE_SECONDS = 30.0
ATTEMPT_SECONDS_MAX = 5.0
SLICES_PER_PAGE = 500
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in which a pod finds its token and the CA of the API server."""


class NoClusterError(ValueError):
    """The API server cannot be found; one line that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Where the API server is (``https://HOST:PORT``), and the directory with the token and the authority for it."""

    url: str
    account: Path = ACCOUNT

    @classmethod
    def of_cluster(cls, environment: Mapping[str, str], account: Path = ACCOUNT) -> ApiServer:
        """The one of the cluster that this pod runs in. Raises :class:`NoClusterError`."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise NoClusterError("--expect service:NAMESPACE/NAME works in a Kubernetes pod only; state a number, or names")
        return cls(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", account=account)

    def tls(self) -> ssl.SSLContext:
        """Verifies the API server by the cluster's authority; the system's where there is none."""
        authority = self.account / "ca.crt"
        return ssl.create_default_context(cafile=authority if authority.exists() else None)

    def token(self) -> str:
        """The token of now: it rotates."""
        return (self.account / "token").read_text().strip()


class ServicePods:
    """Polls the pods of ``services`` (``NAMESPACE/NAME``), and calls ``found`` with each result."""

    def __init__(
        self, api: ApiServer, services: Iterable[str], found: Callable[[str, Pods], None], log: Log,
        read_seconds: float = READ_SECONDS, stale_seconds: float = STALE_SECONDS,
    ) -> None:  # fmt: skip
        self._api = api
        self._found = found
        self._log = log
        self._read_seconds = read_seconds
        self._stale_seconds = stale_seconds
        self._read_at = {service: float("-inf") for service in services}
        self._failures: dict[str, str] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_SECONDS_MAX)
        connector = aiohttp.TCPConnector(ssl=self._api.tls())
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            while True:
                await asyncio.gather(*(self._read(session, service) for service in self._read_at))
                await asyncio.sleep(self._read_seconds)

    async def _read(self, session: aiohttp.ClientSession, service: str) -> None:
        try:
            names = await self._pods(session, *service.split("/"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._failed(service, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            return
        self._read_at[service] = time.monotonic()
        if self._failures.pop(service, None) is not None:
            self._log.info("pods of service read again", service=service, pods=len(names))
        self._found(service, Pods(names=names) if names else Pods(unknown="it has none; is its name right?"))

    def _failed(self, service: str, reason: str) -> None:
        if self._failures.get(service) != reason:
            self._failures[service] = reason
            self._log.warning("pods of service not read", service=service, reason=reason)
        if time.monotonic() - self._read_at[service] > self._stale_seconds:
            self._found(service, Pods(unknown=reason))

    async def _pods(self, session: aiohttp.ClientSession, namespace: str, name: str) -> frozenset[str]:
        url = f"{self._api.url}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        wanted = {"labelSelector": f"kubernetes.io/service-name={name}", "limit": str(SLICES_PER_PAGE)}
        found: set[str] = set()
        while True:
            headers = {"Authorization": f"Bearer {self._api.token()}", "Accept": "application/json"}
            async with session.get(url, params=wanted, headers=headers) as answer:
                if answer.status != HTTPStatus.OK:
                    raise ValueError(f"the API server answered {answer.status} {answer.reason}{_hint(answer.status)}")
                page = await answer.json(content_type=None)
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


def _hint(status: int) -> str:
    return (
        ": its account may not list endpointslices there (chart: detector.expect)"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        else ""
    )
