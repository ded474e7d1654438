"""A small client of the Kubernetes API server: JSON over HTTPS, with a pod's own token, authority and namespace.

Rules:

1. The token is read for each request: it rotates.
2. Whatever goes wrong is an :class:`ApiError`, with a line for the log; an answer that refuses bears its status.
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
"""The directory in which a pod finds its token, its namespace and the CA of the API server."""


class NoClusterError(ValueError):
    """The API server cannot be found; one line that says what to change."""


class ApiError(Exception):
    """The API server cannot be asked, or refuses; ``status`` is that of its answer, None where there was none."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Where the API server is (``https://HOST:PORT``), and the directory with the token and the authority for it."""

    url: str
    account: Path = ACCOUNT

    @classmethod
    def of_cluster(
        cls, environment: Mapping[str, str], account: Path = ACCOUNT,
        *, wanted: str = "--expect service:NAMESPACE/NAME", instead: str = "; state a number, or names",
    ) -> ApiServer:  # fmt: skip
        """The one of the cluster that this pod runs in, for the setting ``wanted``. Raises :class:`NoClusterError`."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise NoClusterError(f"{wanted} works in a Kubernetes pod only{instead}")
        return cls(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", account=account)

    def tls(self) -> ssl.SSLContext:
        """Verifies the API server by the cluster's authority; the system's where there is none."""
        authority = self.account / "ca.crt"
        return ssl.create_default_context(cafile=authority if authority.exists() else None)

    def token(self) -> str:
        """The token of now: it rotates."""
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
        """What is at ``path``. Raises :class:`ApiError`."""
        return await self._request("GET", path, parameters=parameters)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create ``body`` in the collection ``path``: what was created. Raises :class:`ApiError`."""
        return await self._request("POST", path, body=body)

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Replace what is at ``path``, unless its ``resourceVersion`` differs (409): what is there now.

        Raises :class:`ApiError`.
        """
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
