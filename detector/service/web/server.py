"""The HTTP side: metrics, health and pages, on the standard library's server with threads of its own.

A page is made on the event loop, where the state lives; ``/healthz`` therefore also says whether that loop still turns.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Coroutine
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from detector.ops.logs import Log
from detector.service import metrics as metric_texts
from detector.service.detection.driver import Driver
from detector.service.metrics import Metrics
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.pages import Pages

T = TypeVar("T")

_ANSWER_SECONDS_MAX = 5.0
_CONNECTION_SECONDS_MAX = 10.0
_CONNECTIONS_MAX = 64
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Web:
    """Serves HTTP beside the event loop."""

    def __init__(self, *, driver: Driver, snapshot_store: SnapshotStore, metrics: Metrics, log: Log) -> None:
        """What the pages show."""
        self._pages = Pages(driver=driver, snapshot_store=snapshot_store)
        self._metrics = metrics
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None

    def bind(self, host: str, port: int) -> int:
        """Listen: the port. Raises ``OSError``."""
        self._server = _Server((host, port), self)
        return int(self._server.server_address[1])

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer from now on; ``loop`` is the service's."""
        self._loop = loop
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, args=(0.1,), name="stilltrue-http", daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        loop, self._loop = self._loop, None
        if self._server is not None:
            if loop is not None:
                self._server.shutdown()
            self._server.server_close()

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body of ``path``; called on a server's thread."""
        try:
            match path:
                case "/metrics":
                    return HTTPStatus.OK, metric_texts.CONTENT_TYPE, self._metrics.text()
                case "/healthz" | "/readyz":
                    self._on_loop(_turn())
                    return HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n"
                case _:
                    page = self._on_loop(self._pages.page(path))
        except (TimeoutError, concurrent.futures.TimeoutError, RuntimeError):
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", b"the detector does not answer\n"
        if page is None:
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is no such page\n"
        return HTTPStatus.OK, page.content_type, page.body.encode()

    def failed(self, error: BaseException, path: str) -> None:
        """A page could not be made."""
        self._log.failure("page failed", error, path=path)

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the service is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS_MAX)


async def _turn() -> None:
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], web: Web) -> None:
        self.web = web
        self._room = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nobody's error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CONNECTION_SECONDS_MAX
    server_version = "stilltrue"
    sys_version = ""

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        try:
            status, content_type, body = self.server.web.answer(path)
        except Exception as error:  # noqa: BLE001 - a page that cannot be made is one failed answer
            self.server.web.failed(error, path)
            status, content_type = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8"
            body = b"this page cannot be made; see the log\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: scrapes come every few seconds."""
