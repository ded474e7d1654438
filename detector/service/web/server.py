"""The HTTP side: metrics, health and pages, on the event loop where the state lives.

``/healthz`` therefore also says whether that loop still turns. Where there are roles, all but the probes needs a reader's or an
operator's bearer token.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from detector.ops.http import Answer, HttpServer
from detector.ops.logs import Log
from detector.service import metrics as metric_texts
from detector.service.detection.driver import Driver
from detector.service.grpc_api.roles import LOOKERS, Roles
from detector.service.metrics import Metrics
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.api import Api
from detector.service.web.pages import Pages

_API = "/api/v1/"


class Web:
    """The detector's HTTP side."""

    def __init__(
        self,
        *,
        driver: Driver,
        snapshot_store: SnapshotStore,
        metrics: Metrics,
        log: Log,
        hosts: frozenset[str] = frozenset(),
        roles: Roles | None = None,
        base_path: str = "",
        trace_url: str = "",
    ) -> None:
        """``hosts``: the names that requests may be addressed to, as :class:`~detector.ops.http.HttpServer` takes them.

        ``roles`` None: every client may read. ``base_path``: where a reverse proxy publishes the pages; requests come with
        it or without it. ``trace_url``: where a trace can be seen, with ``{trace}`` for its id.
        """
        self._roles = roles
        self._base_path = base_path
        self._pages = Pages(driver=driver, snapshot_store=snapshot_store, base_path=base_path, trace_url=trace_url)
        self._api = Api(driver=driver, snapshot_store=snapshot_store)
        self._metrics = metrics
        self._http = HttpServer(self._answer, log=log, hosts=hosts)

    async def start(self, host: str, port: int) -> int:
        """Listen: the port. Raises ``OSError``."""
        return await self._http.start(host, port)

    async def stop(self) -> None:
        """Listen no more."""
        await self._http.stop()

    async def _answer(self, request: web.BaseRequest) -> Answer | None:
        path = request.path
        if self._base_path and f"{path}/".startswith(f"{self._base_path}/"):
            path = path[len(self._base_path) :] or "/"
        if path in {"/healthz", "/readyz"}:
            return Answer(body="ok\n")
        if self._roles is not None and not self._roles.of(frozenset(), _token(request)) & LOOKERS:
            return Answer(status=HTTPStatus.UNAUTHORIZED, body="show a bearer token of a reader or operator (--roles-file)\n")
        if path == "/metrics":
            return Answer(body=self._metrics.text(), content_type=metric_texts.CONTENT_TYPE)
        if path == "/live":
            return await self._pages.live(request.rel_url.query.get("seen", ""))
        if path.startswith(_API):
            return await self._api.answer(path[len(_API) :], request.rel_url.query)
        return await self._pages.page(path)


def _token(request: web.BaseRequest) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
