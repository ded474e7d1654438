"""A small client of the Kubernetes API server: JSON over HTTPS, with the pod's token, CA and namespace.

Rules:

1. The token is read for each request, since it rotates.
2. Every failure is an :class:`ApiError` with a line for the log, and the HTTP status if there was an answer.
3. No request takes longer than :data:`ATTEMPT_SECONDS_MAX`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

ATTEMPT_SECONDS_MAX = 5.0
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its namespace and the API server's CA."""


class NoClusterError(ValueError):
    """The API server cannot be found; the message says in one line what to change."""


class ApiError(Exception):
    """The API server is unreachable or refuses; ``status``: the HTTP status, None without an answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """The API server's address (``https://HOST:PORT``), and the directory with its credentials."""

    url: str
    account: Path = ACCOUNT

    @classmethod
    def of_cluster(
        cls, environment: Mapping[str, str], account: Path = ACCOUNT,
        *, wanted: str = "--expect service:NAMESPACE/NAME", instead: str = "; give a number or names instead",
    ) -> ApiServer:  # fmt: skip
        """The API server of this pod's cluster, for the setting ``wanted``. Raises :class:`NoClusterError`."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise NoClusterError(f"{wanted} works only in a Kubernetes pod{instead}")
        return cls(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", account=account)

    def tls(self) -> ssl.SSLContext:
        """A context that verifies the API server with the cluster's CA, or the system's if there is none."""
        authority = self.account / "ca.crt"
        return ssl.create_default_context(cafile=authority if authority.exists() else None)

    def token(self) -> str:
        """Read the current token."""
        return (self.account / "token").read_text().strip()

    def namespace(self) -> str:
        """The namespace of this pod. Raises :class:`NoClusterError`."""
        try:
            return (self.account / "namespace").read_text().strip()
        except OSError as error:
            raise NoClusterError(f"the pod's namespace cannot be read: {error}") from None


class Api:
    """An open client of ``server``: ``async with Api(server) as api``."""

    def __init__(self, server: ApiServer, attempt_seconds_max: float = ATTEMPT_SECONDS_MAX) -> None:
        self._server = server
        timeout = aiohttp.ClientTimeout(total=attempt_seconds_max)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=server.tls()))

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        await self._session.close()

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """Read the object at ``path``. Raises :class:`ApiError`."""
        return await self._request("GET", path, parameters=parameters)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create ``body`` in the collection ``path``; returns the created object. Raises :class:`ApiError`."""
        return await self._request("POST", path, body=body)

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Replace the object at ``path`` and return it. Raises :class:`ApiError`; 409 if its ``resourceVersion`` differs."""
        return await self._request("PUT", path, body=body)

    async def _request(
        self, method: str, path: str, parameters: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            headers = {"Authorization": f"Bearer {self._server.token()}", "Accept": "application/json"}
            url = f"{self._server.url}{path}"
            async with self._session.request(method, url, params=parameters, json=body, headers=headers) as answer:
                if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    raise ApiError(f"the API server answered {answer.status} {answer.reason}", answer.status)
                return await answer.json(content_type=None)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
