"""What stands in the place of each replaced method, for one agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stilltrue.http import asgi, wsgi
from stilltrue.http.aiohttp_client import RecordedAiohttp
from stilltrue.http.aiohttp_server import RecordedAiohttpServer
from stilltrue.http.httpx_aio import RecordedAsyncHttpx
from stilltrue.http.httpx_blocking import RecordedHttpx
from stilltrue.http.outgoing import Requests
from stilltrue.http.requests_client import RecordedRequests
from stilltrue.runtime.session import Session

Make = Callable[..., Any]


class Makers:
    """By the name of a method, what is called instead of it: with the original first."""

    def __init__(self, session: Session, start: Callable[[], object]) -> None:
        """``start`` has the agent connect; idempotent."""
        self._session = session
        self._start = start
        requests = Requests(session, start)
        self._of_httpx = RecordedHttpx(requests)
        self._of_async_httpx = RecordedAsyncHttpx(requests)
        self._of_requests = RecordedRequests(requests)
        self._of_aiohttp = RecordedAiohttp(requests)
        self._by_aiohttp = RecordedAiohttpServer(session, start)

    def __call__(self, name: str) -> Make | None:
        """The replacement of the method ``name``; None: there is none."""
        of_requests, of_aiohttp = self._of_requests, self._of_aiohttp
        known: dict[str, Callable[[], Make]] = {
            "HTTPAdapter.send": lambda: of_requests.send,
            "Response.iter_content": lambda: of_requests.iter_content,
            "Response.close": lambda: of_requests.close,
            "HTTPConnection.endheaders": lambda: of_requests.endheaders,
            "HTTPTransport.handle_request": lambda: self._of_httpx.handle_request,
            "HTTP11Connection._send_request_headers": lambda: self._of_httpx.send_headers,
            "HTTP2Connection._send_request_headers": lambda: self._of_httpx.send_headers,
            "AsyncHTTPTransport.handle_async_request": lambda: self._of_async_httpx.handle_request,
            "AsyncHTTP11Connection._send_request_headers": lambda: self._of_async_httpx.send_headers,
            "AsyncHTTP2Connection._send_request_headers": lambda: self._of_async_httpx.send_headers,
            "ClientSession._request": lambda: of_aiohttp.request,
            "ClientRequest.send": lambda: of_aiohttp.send,
            "ClientResponse.start": lambda: of_aiohttp.start,
            "ClientResponse.close": lambda: of_aiohttp.close,
            "ClientResponse.release": lambda: of_aiohttp.close,
            "RequestHandler._handle_request": lambda: self._by_aiohttp.handle,
            "StreamResponse._write_headers": lambda: self._by_aiohttp.write_headers,
            "Flask.__call__": lambda: self._wsgi,
            "WSGIHandler.__call__": lambda: self._wsgi,
            "ASGIHandler.__call__": lambda: self._asgi,
            "Starlette.__call__": lambda: self._asgi,
            "Bottle.__call__": lambda: self._wsgi,
        }
        return known[name]() if name in known else None

    def _wsgi(self, original: Make, app: Any, environ: Any, start_response: Any) -> Any:
        self._start()
        return wsgi.serve(self._session, partial(original, app), environ, start_response)

    async def _asgi(self, original: Make, app: Any, scope: Any, receive: Any, send: Any) -> Any:
        self._start()
        return await asgi.serve(self._session, partial(original, app), scope, receive, send)
