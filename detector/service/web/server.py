"""The HTTP server: metrics, health, the API and the web UI, on the event loop that owns the state.

So ``/healthz`` also shows that the loop runs. Reads take turns and at most half of the loop's time, so that they delay neither
questions nor agents. With roles, everything but health checks and static files needs a reader's or operator's bearer token, a
browser session, or a user named by a trusted proxy.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus

from aiohttp import web

from detector.ops.http import Answer, HttpServer
from detector.ops.logs import Log
from detector.ops.turns import Turns
from detector.service import metrics as metric_texts
from detector.service.cure.cures import Cures
from detector.service.detection.driver import Driver
from detector.service.grpc_api.access_log import AccessLog
from detector.service.grpc_api.roles import READERS, Role, Roles, describe_client
from detector.service.metrics import Metrics
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.api.api import Api, FindSnapshot
from detector.service.web.api.live import LiveVersions
from detector.service.web.api.version import StateVersion
from detector.service.web.cure import CurePages
from detector.service.web.login import Login, bearer_of, wanted
from detector.service.web.pages import Pages
from detector.service.web.proxy_user import ProxyUser
from stilltrue.v1 import detector_pb2 as pb

_API = "/api/v1/"
_METHODS = ("GET", "HEAD", "POST")
_PROBES = frozenset({"/healthz", "/readyz"})
_STATIC = "/static/"
_CURE = re.compile(r"(/api/v1)?/incidents/([A-Za-z0-9-]{1,64})/cure")


class Web:
    """The detector's HTTP server."""

    def __init__(
        self,
        *,
        driver: Driver,
        cures: Cures,
        snapshot_store: SnapshotStore,
        archived: FindSnapshot,
        metrics: Metrics,
        log: Log,
        hosts: frozenset[str] = frozenset(),
        roles: Roles | None = None,
        operators: Roles | None = None,
        on_loopback: bool = False,
        base_path: str = "",
        external_url: str = "",
        trace_url: str = "",
        proxy_user: ProxyUser | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        """``archived`` finds a snapshot that the store no longer has; ``hosts``: see :class:`~detector.ops.http.HttpServer`.

        ``roles`` None: every client may read. ``operators``: the roles that may end incidents; None: every client, but only
        ``on_loopback``. ``base_path``: where a reverse proxy publishes the web UI; requests may come with or without it.
        ``external_url``: the web UI's public URL. ``trace_url``: the URL of a trace, with ``{trace}`` for its id.
        """
        users = proxy_user or ProxyUser()
        self._login = _login(roles, users, base_path, external_url)
        self._token_of = bearer_of if self._login is None else self._login.token_of
        self._base_path = base_path

        async def find(number: int) -> pb.GetSnapshotResponse | None:
            return await snapshot_store.snapshot(number) or await archived(number)

        version = StateVersion(driver)
        self._live = LiveVersions(version)
        self._api = Api(driver=driver, snapshot_store=snapshot_store, find=find)
        self._pages = Pages(api=self._api, version=version, base_path=base_path, trace_url=trace_url)
        self._cure = CurePages(
            cures=cures,
            render=self._pages.html,
            token_of=self._token_of,
            user_of=users.of,
            roles=operators,
            on_loopback=on_loopback,
            base_path=base_path,
        )
        self._metrics = metrics
        self._scrape: asyncio.Task[bytes] | None = None
        self._scrapes = Turns()
        self._reads = Turns()
        self._access_log = access_log
        self._user_of = users.of
        self._roles = operators
        note = self._note if access_log is not None else None
        self._http = HttpServer(self._answer, log=log, hosts=hosts, methods=_METHODS, note=note)

    async def start(self, host: str, port: int) -> int:
        """Start listening; returns the port. Raises ``OSError``."""
        return await self._http.start(host, port)

    async def stop(self) -> None:
        """Stop listening."""
        await self._http.stop()

    def _note(self, request: web.BaseRequest, answer: Answer) -> None:
        """Write to the access log, except for health checks and static files."""
        path = self._path(request)
        if self._access_log is None or path in _PROBES or path.startswith(_STATIC):
            return
        user, token = self._user_of(request), self._token_of(request)
        roles = frozenset[Role]() if self._roles is None else self._roles.of(frozenset(), token, user)
        names = frozenset({f"user {user}"}) if user else frozenset[str]()
        who = describe_client(names, token, request.remote or "an unknown address")
        refused = answer.status >= HTTPStatus.BAD_REQUEST or answer.headers.get("Location", "").partition("?")[0].endswith(
            "/login"
        )
        outcome = "refused" if refused and path != "/logout" else "accepted"
        self._access_log.note(request.method, who, roles, outcome, path=path, status=int(answer.status))

    def _path(self, request: web.BaseRequest) -> str:
        """The path without the base path."""
        path = request.path
        if self._base_path and f"{path}/".startswith(f"{self._base_path}/"):
            return path[len(self._base_path) :] or "/"
        return path

    async def _answer(self, request: web.BaseRequest) -> Answer | None:
        path = self._path(request)
        if self._login is not None and path in {"/login", "/logout"}:
            return await self._log_in_or_out(self._login, path, request)
        cure = _CURE.fullmatch(path)
        if request.method == "POST" and cure is None:
            raise web.HTTPMethodNotAllowed("POST", ["GET", "HEAD"])
        if path in _PROBES:
            return Answer(body="ok\n")
        if self._login is not None and not path.startswith(_STATIC) and not self._login.allows(request):
            return self._login.refuse(request)
        if cure is not None:
            answers = self._cure.answer if cure[1] else self._cure.page
            return await answers(cure[2], request)
        if path == "/metrics":
            return Answer(body=await self._metrics_text(), content_type=metric_texts.CONTENT_TYPE)
        return await self._reads.run(self._read(path, request))

    async def _metrics_text(self) -> bytes:
        """Render the metrics, once for all concurrent scrapes; pages do not delay it."""
        if self._scrape is None:
            self._scrape = asyncio.create_task(self._scrapes.run(self._make_metrics()))
        return await asyncio.shield(self._scrape)

    async def _make_metrics(self) -> bytes:
        self._scrape = None
        return self._metrics.text()

    async def _read(self, path: str, request: web.BaseRequest) -> Answer | None:
        if path in {f"{_API}events", "/live"}:  # /live: the former name
            return self._live.answer(request.rel_url.query.get("seen", "")[:64])
        if path.startswith(_API):
            return await self._api.answer(path[len(_API) :], request.rel_url.query)
        make = self._pages.shared_page if "Stilltrue-Live" in request.headers else self._pages.page
        found = await make(path, request.rel_url.query, operator=self._cure.offered_to(request))
        return found or (self._pages.missing() if "text/html" in request.headers.get("Accept", "") else None)

    async def _log_in_or_out(self, login: Login, path: str, request: web.BaseRequest) -> Answer:
        if path == "/logout":
            return login.logout(request)
        if request.method != "POST":
            return self._pages.login(refused=False, wanted=wanted(request))
        return await login.submit(request) or self._pages.login(refused=True, wanted=wanted(request))


def _login(roles: Roles | None, users: ProxyUser, base_path: str, external_url: str) -> Login | None:
    if roles is None:
        return None

    def may_read(token: str, user: str) -> bool:
        return bool(roles.of(frozenset(), token, user) & READERS)

    return Login(may_read=may_read, user_of=users.of, base_path=base_path, secure=external_url.startswith("https://"))
