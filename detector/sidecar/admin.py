"""Serves the sidecar's admin pages: /healthz, /readyz, /metadata (JSON) and /metrics (Prometheus text format)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus

REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 5.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

Page = tuple[HTTPStatus, str, str]
"""A status, a content type, a body."""

Pages = dict[str, Callable[[], Awaitable[Page]]]


def ok(body: str, kind: str = TEXT) -> Page:
    """A page with status 200."""
    return HTTPStatus.OK, kind, body


def as_json(values: object) -> Page:
    """A page of JSON."""
    return ok(json.dumps(values, indent=2) + "\n", JSON)


class Admin:
    """Serves the pages."""

    def __init__(self, pages: Pages) -> None:
        """``pages`` by path."""
        self._pages = pages

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen; raises ``OSError``."""
        return await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = await self._page(head.split(b"\r\n", 1)[0].decode("latin-1").split(" "))
                octets = body.encode()
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(octets)}\r\nConnection: close\r\n\r\n".encode()
                    + (b"" if head.startswith(b"HEAD ") else octets)
                )
                await writer.drain()
        writer.close()

    async def _page(self, line: list[str]) -> Page:
        if len(line) != 3 or line[0] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are supported\n"
        page = self._pages.get(line[1].partition("?")[0])
        if page is None:
            return HTTPStatus.NOT_FOUND, TEXT, "not found; pages: " + ", ".join(sorted(self._pages)) + "\n"
        return await page()
