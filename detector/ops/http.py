"""A small HTTP server on the event loop for pages, metrics and probes: bounded, and never starved by slow clients.

Rules:

1. A connection bears one request and ends ``connection_seconds_max`` after it began, whatever it has sent by then.
2. Beyond ``connections_max`` the oldest connection that has not sent its request is closed: those that drip their headers
   make room for those that speak.
3. An answer that is a stream goes on beyond that, for ``stream_seconds_max``; there are at most ``streams_max``. A reader
   that takes nothing for ``answer_seconds_max`` is closed.
4. Only requests for this server are answered: a ``Host`` that is none of its names is refused (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus

from aiohttp import web

from detector.ops.address import host_of, is_loopback
from detector.ops.logs import Log, fields_of

MALFORMED_SECONDS = 60.0
"""How often it is logged that clients send what is not HTTP."""
TEXT = "text/plain; charset=utf-8"
_POLICY = (
    "default-src 'none'; style-src {styles}; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def policy(styles: str = "'self'") -> str:
    """What a browser may load and run of an answer: the server's own files, and nothing that stands in the page.

    ``styles``: the sources of its styles, such as the digest of one that does stand in the page.
    """
    return _POLICY.format(styles=styles)


_HEADERS = {
    "Content-Security-Policy": policy(),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP response."""

    body: bytes | str
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    gzipped: bytes | None = None
    """The body in short, for clients that take it."""
    stream: AsyncIterator[bytes] | None = None
    """What follows the body, as long as the client reads."""


Note = Callable[[web.BaseRequest, Answer], None]
"""Is told of each request, and how it is answered."""
Handler = Callable[[web.BaseRequest], Awaitable[Answer | None]]
"""Answers a request; None: there is no such page."""


class HttpServer:
    """Serves what ``handler`` answers."""

    def __init__(
        self,
        handler: Handler,
        *,
        log: Log,
        hosts: Collection[str] = (),
        methods: Collection[str] = ("GET", "HEAD"),
        answer_seconds_max: float = 5.0,
        connection_seconds_max: float = 10.0,
        connections_max: int = 500,
        stream_seconds_max: float = 600.0,
        streams_max: int = 1000,
        note: Note | None = None,
    ) -> None:
        """``hosts``: the names to answer to. None given: on loopback its names, elsewhere any."""
        self._handler = handler
        self._note = note
        self._log = log
        self._hosts = frozenset(hosts)
        self._methods = frozenset(methods)
        self._answer_seconds_max = answer_seconds_max
        self._connection_seconds_max = connection_seconds_max
        self._connections_max = connections_max
        self._stream_seconds_max = stream_seconds_max
        self._streams_max = streams_max
        self._streams = 0
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._on_loopback = True
        self._silent: dict[web.RequestHandler, None] = {}
        self._http = web.Server(self._respond, access_log=None, handler_cancellation=True, logger=_malformed_logger())
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen: the port. Raises ``OSError``."""
        self._on_loopback = is_loopback(host)
        self._server = await asyncio.get_running_loop().create_server(self._connection, host, port, ssl=tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, and end requests in progress."""
        if self._server is not None:
            self._server.close()
        await self._http.shutdown(0.5)

    def _connection(self) -> web.RequestHandler:
        """Rules 1 and 2, for a new connection."""
        if len(self._silent) >= self._connections_max:
            self._end(next(iter(self._silent)))
        protocol = self._http()
        self._silent[protocol] = None
        self._end_in(self._connection_seconds_max, protocol)
        return protocol

    def _end_in(self, seconds: float, protocol: web.RequestHandler) -> None:
        if (before := self._ends.get(protocol)) is not None:
            before.cancel()
        self._ends[protocol] = asyncio.get_running_loop().call_later(seconds, self._end, protocol)

    def _end(self, protocol: web.RequestHandler) -> None:
        self._silent.pop(protocol, None)
        if (timer := self._ends.pop(protocol, None)) is not None:
            timer.cancel()
        if protocol.transport is not None:
            protocol.transport.abort()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self._silent.pop(request.protocol, None)
        answer = await self._answer(request)
        if self._note is not None:
            self._note(request, answer)
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        headers = {**_HEADERS, **answer.headers, "Content-Type": answer.content_type, "Server": "stilltrue"}
        if answer.stream is not None and request.method == "GET":
            return await self._stream(request, answer.stream, headers)
        if answer.gzipped is not None:
            headers["Vary"] = "Accept-Encoding"
            if _takes_gzip(request.headers.get("Accept-Encoding", "")):
                body, headers["Content-Encoding"] = answer.gzipped, "gzip"
        response = web.Response(body=body, status=answer.status, headers=headers)
        response.force_close()
        return response

    async def _stream(
        self, request: web.BaseRequest, parts: AsyncIterator[bytes], headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Rule 3."""
        if self._streams >= self._streams_max:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="too many streams\n", headers={"Retry-After": "5"})
        response = web.StreamResponse(headers=headers)
        response.force_close()
        self._end_in(self._stream_seconds_max, request.protocol)
        self._streams += 1
        try:
            await response.prepare(request)
            async for part in parts:
                async with asyncio.timeout(self._answer_seconds_max):
                    await response.write(part)
        except (TimeoutError, ConnectionError):
            self._end(request.protocol)
        finally:
            self._streams -= 1
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        if not self._is_for_us(request.headers.get("Host")):
            return Answer(status=HTTPStatus.MISDIRECTED_REQUEST, body="this server does not answer to that host name\n")
        if request.method not in self._methods:
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=f"{' or '.join(sorted(self._methods))} only\n")
        try:
            async with asyncio.timeout(self._answer_seconds_max):
                answer = await self._handler(request)
        except TimeoutError:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body="no answer in time\n")
        except web.HTTPException as refusal:
            return Answer(status=HTTPStatus(refusal.status), body=f"{refusal.reason}\n")
        except Exception as error:  # noqa: BLE001 - a page that cannot be made is one failed answer
            self._log.failure("page failed", error, path=request.path)
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body="this page cannot be rendered; see the log\n")
        return answer or Answer(status=HTTPStatus.NOT_FOUND, body="no such page\n")

    def _is_for_us(self, host: str | None) -> bool:
        """Rule 4. Browsers always send the header; a request without one comes from no browser."""
        if host is None or (not self._hosts and not self._on_loopback):
            return True
        name = host_of(host)
        return name in self._hosts or is_loopback(name)


class _Rarely(logging.Filter):
    """Lets one record through in each ``MALFORMED_SECONDS``, without its traceback, and says how many it has kept back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = -math.inf
        self._kept_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        if now < self._until:
            self._kept_back += 1
            return False
        error = record.exc_info[1] if record.exc_info else None
        values = {"said": type(error).__name__ if error else record.getMessage(), "before": self._kept_back or None}
        record.msg, record.args, record.exc_info, record.exc_text = "request malformed", (), None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.__dict__.update(fields_of(values))
        self._until, self._kept_back = now + MALFORMED_SECONDS, 0
        return True


@cache
def _malformed_logger() -> logging.Logger:
    """Where aiohttp complains of what is not HTTP: any client of the port can send that, so it is not logged each time."""
    logger = logging.getLogger("stilltrue.http")
    logger.addFilter(_Rarely())
    return logger


def _takes_gzip(accepted: str) -> bool:
    """Whether the header ``Accept-Encoding`` allows gzip (by its name: ``*`` is not taken for it)."""
    for each in accepted.lower().split(","):
        coding, _, quality = each.partition(";")
        if coding.strip() == "gzip":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", quality)
    return False
