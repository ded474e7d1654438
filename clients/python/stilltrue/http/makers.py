"""What stands in the place of each replaced method, for one agent."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from stilltrue.http import asgi, wsgi
from stilltrue.http.aiohttp_server import RecordedAiohttpServer
from stilltrue.http.asgi import ASGIMiddleware
from stilltrue.http.clients.aiohttp_client import RecordedAiohttp
from stilltrue.http.clients.httpx_aio import RecordedAsyncHttpx
from stilltrue.http.clients.httpx_blocking import RecordedHttpx
from stilltrue.http.clients.outgoing import Requests
from stilltrue.http.clients.requests_client import RecordedRequests
from stilltrue.http.wsgi import WSGIMiddleware
from stilltrue.runtime.compat.references import module_of
from stilltrue.runtime.session import Session

Make = Callable[..., Any]
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
"""By the method of a server that serves one request: where its object has the application, and what records that one."""
_MIDDLEWARE_MAX = 4


class Makers:
    """By the name of a method, what is called instead of it: with the original first."""

    def __init__(self, session: Session, start: Callable[[], object], not_recorded: Callable[[str, object], None]) -> None:
        """``start`` has the agent connect; idempotent. ``not_recorded`` is told, in words, of what nothing here records."""
        self._session = session
        self._start = start
        self._not_recorded = not_recorded
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
            "Quart.__call__": lambda: self._asgi,
            "Litestar.__call__": lambda: self._asgi,
            "App.__call__": lambda: self._wsgi,
            "Router.__call__": lambda: self._wsgi,
            "Bottle.__call__": lambda: self._wsgi,
            "RequestResponseCycle.run_asgi": lambda: self._under_uvicorn,
            "ASGIWrapper.__call__": lambda: self._under_hypercorn,
            "BaseHandler.run": lambda: self._under_wsgiref,
            "Channel.__connect__": lambda: partial(self._unseen, "channel of grpclib"),
            "Server.start": lambda: partial(self._unseen, "server of grpclib"),
            "HTTPServer.start_request": lambda: partial(self._unseen, "server of Tornado"),
            "SanicProtocol.__init__": lambda: self._unseen_sanic,
        }
        if name in _APPLICATIONS:
            return partial(self._serving, *_APPLICATIONS[name])
        return known[name]() if name in known else None

    def _wsgi(self, original: Make, app: Any, environ: Any, start_response: Any) -> Any:
        self._start()
        return wsgi.serve(self._session, partial(original, app), environ, start_response)

    async def _asgi(self, original: Make, app: Any, scope: Any, receive: Any, send: Any) -> Any:
        self._start()
        return await asgi.serve(self._session, partial(original, app), scope, receive, send)

    def _under_uvicorn(self, original: Make, cycle: Any, app: Any) -> Any:
        """Any application of ASGI's; one of WSGI's runs in a thread, where its framework is known."""
        self._start()
        return original(cycle, app if _is_of_wsgi(app) else ASGIMiddleware(app, self._session))

    def _under_hypercorn(self, original: Make, wrapper: Any, *given: Any, **named: Any) -> Any:
        self._start()
        recorded = copy(wrapper)
        recorded.app = ASGIMiddleware(wrapper.app, self._session)
        return original(recorded, *given, **named)

    def _under_wsgiref(self, original: Make, handler: Any, application: Any) -> Any:
        self._start()
        return original(handler, WSGIMiddleware(application, self._session))

    def _serving(self, path: str, kind: Any, original: Make, one: Any, *given: Any, **named: Any) -> Any:
        """A server serves a request by the application at ``path`` from ``one``, which is a recorded one from now on."""
        self._start()
        try:
            *owners, name = path.split(".")
            owner = one
            for each in owners:
                owner = getattr(owner, each)
            application = getattr(owner, name)
            recorded = kind.before(application, self._session)
            if recorded is not application:
                setattr(owner, name, recorded)
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("a server's application is recorded")
        return original(one, *given, **named)

    def _unseen(self, what: str, original: Make, owner: Any, *given: Any, **named: Any) -> Any:
        self._not_recorded(what, owner)
        self._start()
        return original(owner, *given, **named)

    def _unseen_sanic(self, original: Make, protocol: Any, *given: Any, **named: Any) -> Any:
        """A connection to Sanic's server; there is no weak reference to its application, but one to the protocol's class."""
        self._not_recorded("server of Sanic", type(protocol))
        self._start()
        return original(protocol, *given, **named)


def _is_of_wsgi(app: Any) -> bool:
    """Whether what uvicorn calls hands its requests to an application of WSGI's, perhaps beneath uvicorn's own middleware."""
    for _ in range(_MIDDLEWARE_MAX):
        if type(app).__name__.endswith("WSGIMiddleware"):  # uvicorn's, a2wsgi's
            return True
        if not module_of(type(app)).startswith("uvicorn.middleware."):
            break
        app = getattr(app, "app", None)
    return False
