"""A small HTTP server on the event loop for pages, metrics and health checks: bounded, and safe against slow clients.

Rules:

1. A connection carries one request, and is closed ``connection_seconds_max`` after it began, whatever it has sent.
2. Beyond ``connections_max`` the oldest connection that has not sent its request is closed, so that slow clients make room
   for others.
3. A streamed answer may last longer, up to ``stream_seconds_max``; there are at most ``streams_max``. A client that reads
   nothing for ``answer_seconds_max`` is disconnected.
4. Requests whose ``Host`` is not one of the server's names are refused (DNS rebinding).
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
"""Minimum interval between log lines about malformed requests."""
TEXT = "text/plain; charset=utf-8"
_POLICY = (
    "default-src 'none'; style-src {styles}; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def policy(styles: str = "'self'") -> str:
    """The content security policy: a browser may load only the server's own files, and run nothing inline.

    ``styles``: the sources of styles, such as the digest of an inlined one.
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
    """The compressed body, for clients that accept it."""
    stream: AsyncIterator[bytes] | None = None
    """Streamed instead of the body, as long as the client reads."""


Note = Callable[[web.BaseRequest, Answer], None]
"""Called with each request and its answer."""
Handler = Callable[[web.BaseRequest], Awaitable[Answer | None]]
"""Answers a request; None if there is no such page."""


class HttpServer:
    """Serves the answers of ``handler``."""

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
        """``hosts``: the names to answer to; if empty, loopback names on loopback, and any name elsewhere."""
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
        """Start listening; returns the port. Raises ``OSError``."""
        self._on_loopback = is_loopback(host)
        self._server = await asyncio.get_running_loop().create_server(self._connection, host, port, ssl=tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, and end requests in progress."""
        if self._server is not None:
            self._server.close()
        await self._http.shutdown(0.5)

    def _connection(self) -> web.RequestHandler:
        """Create the protocol of a new connection (rules 1 and 2)."""
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
        """Stream an answer (rule 3)."""
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
            body = "this server does not answer to that host name (a detector does if serve --http-hosts names it)\n"
            return Answer(status=HTTPStatus.MISDIRECTED_REQUEST, body=body)
        if request.method not in self._methods:
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=f"{' or '.join(sorted(self._methods))} only\n")
        try:
            async with asyncio.timeout(self._answer_seconds_max):
                answer = await self._handler(request)
        except TimeoutError:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body="no answer in time\n")
        except web.HTTPException as refusal:
            return Answer(status=HTTPStatus(refusal.status), body=f"{refusal.reason}\n")
        except Exception as error:  # noqa: BLE001 - a failing page must not affect others
            self._log.failure("page failed", error, path=request.path)
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body="this page cannot be rendered; see the log\n")
        return answer or Answer(status=HTTPStatus.NOT_FOUND, body="no such page\n")

    def _is_for_us(self, host: str | None) -> bool:
        """Whether the ``Host`` is one of our names (rule 4). Browsers always send the header; others may omit it."""
        if host is None or (not self._hosts and not self._on_loopback):
            return True
        name = host_of(host)
        return name in self._hosts or is_loopback(name)


class _RateLimit(logging.Filter):
    """Passes one record per ``MALFORMED_SECONDS``, without its traceback, and with the number of records suppressed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = -math.inf
        self._suppressed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        if now < self._until:
            self._suppressed += 1
            return False
        error = record.exc_info[1] if record.exc_info else None
        values = {"said": type(error).__name__ if error else record.getMessage(), "before": self._suppressed or None}
        record.msg, record.args, record.exc_info, record.exc_text = "request malformed", (), None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.__dict__.update(fields_of(values))
        self._until, self._suppressed = now + MALFORMED_SECONDS, 0
        return True


@cache
def _malformed_logger() -> logging.Logger:
    """The logger for aiohttp's errors about malformed requests; rate-limited, since any client can cause them."""
    logger = logging.getLogger("stilltrue.http")
    logger.addFilter(_RateLimit())
    return logger


def _takes_gzip(accepted: str) -> bool:
    """Whether the header ``Accept-Encoding`` allows gzip by name; ``*`` does not count."""
    for each in accepted.lower().split(","):
        coding, _, quality = each.partition(";")
        if coding.strip() == "gzip":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", quality)
    return False
