"""The replacements of one agent for methods of HTTP libraries."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from stilltrue.http import asgi, wsgi
from stilltrue.http.aiohttp_server import RecordedAiohttpServer
from stilltrue.http.asgi import ASGIMiddleware
from stilltrue.http.clients.aiohttp_client import RecordedAiohttp
from stilltrue.http.clients.http_client import RecordedHttpClient
from stilltrue.http.clients.httpx_aio import RecordedAsyncHttpx
from stilltrue.http.clients.httpx_blocking import RecordedHttpx
from stilltrue.http.clients.outgoing_request import Requests
from stilltrue.http.clients.requests_client import RecordedRequests
from stilltrue.http.http_server import RecordedHttpServer
from stilltrue.http.instrumented_methods import Replacement
from stilltrue.http.wsgi import WSGIMiddleware
from stilltrue.runtime import compat
from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.session import Session

_APPLICATIONS: dict[str, tuple[str, type[WSGIMiddleware] | type[ASGIMiddleware]]] = {
    "Server.create_application": ("application", ASGIMiddleware),
    "ASGIProtocol._handle_http_request": ("app", ASGIMiddleware),
    "ASGIProtocol._handle_http2_request": ("app", ASGIMiddleware),
    "AsyncWorker.handle_request": ("wsgi", WSGIMiddleware),
    "AsyncWorker.handle_http2_request": ("wsgi", WSGIMiddleware),
    "ThreadWorker.handle_request": ("wsgi", WSGIMiddleware),
    "ThreadWorker.handle_http2_request": ("wsgi", WSGIMiddleware),
    "SyncWorker.handle_request": ("wsgi", WSGIMiddleware),
    "WSGITask.execute": ("channel.server.application", WSGIMiddleware),
    "Gateway.respond": ("req.server.wsgi_app", WSGIMiddleware),
    "WSGIRequestHandler.run_wsgi": ("server.app", WSGIMiddleware),
}
"""By the server method that serves a request: the attribute path to the application, and the middleware for it."""
_MIDDLEWARE_MAX = 4


class Replacements:
    """Maps the name of a method to its replacement."""

    def __init__(
        self,
        session: Session,
        start: Callable[[], object],
        add_unrecorded: Callable[[str, object], None],
        close: Callable[[], None],
    ) -> None:
        """``start`` makes the agent connect, ``close`` says goodbye; both are idempotent.

        ``add_unrecorded(what, owner)`` reports one that is not recorded.
        """
        self._session = session
        self._start = start
        self._close = close
        self._goodbye_prepared = False
        self._add_unrecorded = add_unrecorded
        requests = Requests(session, start)
        self._of_httpx = RecordedHttpx(requests)
        self._of_async_httpx = RecordedAsyncHttpx(requests)
        self._of_requests = RecordedRequests(requests)
        self._of_http_client = RecordedHttpClient(requests)
        self._of_aiohttp = RecordedAiohttp(requests)
        self._by_aiohttp = RecordedAiohttpServer(session, start)
        self._by_http_server = RecordedHttpServer(session, start)

    def __call__(self, name: str) -> Replacement | None:
        """The replacement for the method ``name``, or None."""
        of_requests, of_aiohttp, of_http_client = self._of_requests, self._of_aiohttp, self._of_http_client
        by_http_server = self._by_http_server
        known: dict[str, Callable[[], Replacement]] = {
            "HTTPAdapter.send": lambda: of_requests.send,
            "Response.iter_content": lambda: of_requests.iter_content,
            "Response.close": lambda: of_requests.close,
            "HTTPConnection.endheaders": lambda: of_http_client.endheaders,
            "HTTPConnection.getresponse": lambda: of_http_client.getresponse,
            "HTTPConnection.close": lambda: of_http_client.close_connection,
            "HTTPResponse._close_conn": lambda: of_http_client.close_response,
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
            "HTTPServer.server_bind": lambda: by_http_server.make_server,
            "SimpleXMLRPCServer.__init__": lambda: by_http_server.make_server,
            "BaseHTTPRequestHandler.handle_one_request": lambda: by_http_server.handle,
            "BaseHTTPRequestHandler.parse_request": lambda: by_http_server.parse,
            "BaseHTTPRequestHandler.end_headers": lambda: by_http_server.end_headers,
            "Flask.__call__": lambda: self._wsgi,
            "WSGIHandler.__call__": lambda: self._wsgi,
            "ASGIHandler.__call__": lambda: self._asgi,
            "Starlette.__call__": lambda: self._asgi,
            "Quart.__call__": lambda: self._asgi,
            "Litestar.__call__": lambda: self._asgi,
            "App.__call__": lambda: self._wsgi,
            "Router.__call__": lambda: self._wsgi,
            "Bottle.__call__": lambda: self._wsgi,
            "RequestResponseCycle.run_asgi": lambda: self._under_uvicorn,
            "ASGIWrapper.__call__": lambda: self._under_hypercorn,
            "BaseHandler.run": lambda: self._under_wsgiref,
            "Channel.__connect__": lambda: partial(self._unrecorded, "channel of grpclib"),
            "Server.start": lambda: partial(self._unrecorded, "server of grpclib"),
            "HTTPServer.start_request": lambda: partial(self._unrecorded, "server of Tornado"),
            "SanicProtocol.__init__": lambda: self._unrecorded_sanic,
        }
        if name in _APPLICATIONS:
            return partial(self._under_server, *_APPLICATIONS[name])
        return known[name]() if name in known else None

    def _wsgi(self, original: Replacement, app: Any, environ: Any, start_response: Any) -> Any:
        self._start()
        return wsgi.serve(self._session, partial(original, app), environ, start_response)

    async def _asgi(self, original: Replacement, app: Any, scope: Any, receive: Any, send: Any) -> Any:
        """Record a request; the first call is for the lifespan, when the server has already taken over the signals."""
        self._start()
        self._prepare_goodbye()
        return await asgi.serve(self._session, partial(original, app), scope, receive, send)

    def _under_uvicorn(self, original: Replacement, cycle: Any, app: Any) -> Any:
        """Record an ASGI application; a WSGI one runs in a thread and is recorded by its framework's hook."""
        self._start()
        self._prepare_goodbye()
        return original(cycle, app if _is_wsgi(app) else ASGIMiddleware(app, self._session))

    def _prepare_goodbye(self) -> None:
        if self._goodbye_prepared:
            return
        self._goodbye_prepared = True
        try:
            compat.call_before_sigterm_ends_uvicorn(self._close)
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("preparing a goodbye under uvicorn")

    def _under_hypercorn(self, original: Replacement, wrapper: Any, *given: Any, **named: Any) -> Any:
        self._start()
        recorded = copy(wrapper)
        recorded.app = ASGIMiddleware(wrapper.app, self._session)
        return original(recorded, *given, **named)

    def _under_wsgiref(self, original: Replacement, handler: Any, application: Any) -> Any:
        self._start()
        return original(handler, WSGIMiddleware(application, self._session))

    def _under_server(self, path: str, middleware: Any, original: Replacement, server: Any, *given: Any, **named: Any) -> Any:
        """Serve a request after wrapping the application, at attribute ``path`` of ``server``, in ``middleware``."""
        self._start()
        try:
            *owners, name = path.split(".")
            owner = server
            for each in owners:
                owner = getattr(owner, each)
            application = getattr(owner, name)
            recorded = middleware.wrap(application, self._session)
            if recorded is not application:
                setattr(owner, name, recorded)
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("recording a server's application")
        return original(server, *given, **named)

    def _unrecorded(self, what: str, original: Replacement, owner: Any, *given: Any, **named: Any) -> Any:
        self._add_unrecorded(what, owner)
        self._start()
        return original(owner, *given, **named)

    def _unrecorded_sanic(self, original: Replacement, protocol: Any, *given: Any, **named: Any) -> Any:
        """As :meth:`_unrecorded`; Sanic's application allows no weak reference, so its protocol class stands for it."""
        self._add_unrecorded("server of Sanic", type(protocol))
        self._start()
        return original(protocol, *given, **named)


def _is_wsgi(app: Any) -> bool:
    """Whether uvicorn's ``app`` is a WSGI application in an adapter, possibly inside uvicorn's own middleware."""
    for _ in range(_MIDDLEWARE_MAX):
        if type(app).__name__.endswith("WSGIMiddleware"):  # uvicorn's, a2wsgi's
            return True
        if not module_of(type(app)).startswith("uvicorn.middleware."):
            break
        app = getattr(app, "app", None)
    return False
