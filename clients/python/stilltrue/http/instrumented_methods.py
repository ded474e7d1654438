"""Replaces methods of HTTP libraries and frameworks, both those already imported and those imported later.

It imports none of them itself. A replaced method calls the original until the process has joined; if ``stilltrue run`` has
prepared the process, the first request made or served makes it join.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stilltrue.runtime.joining.import_hook import Finder, after_import

PLACES: dict[str, tuple[str, ...]] = {
    "requests.adapters": ("HTTPAdapter.send",),
    "requests.models": ("Response.iter_content", "Response.close"),
    "http.client": (
        "HTTPConnection.endheaders",
        "HTTPConnection.getresponse",
        "HTTPConnection.close",
        "HTTPResponse._close_conn",
    ),
    "httpx._transports.default": ("HTTPTransport.handle_request", "AsyncHTTPTransport.handle_async_request"),
    "httpcore._sync.http11": ("HTTP11Connection._send_request_headers",),
    "httpcore._sync.http2": ("HTTP2Connection._send_request_headers",),
    "httpcore._async.http11": ("AsyncHTTP11Connection._send_request_headers",),
    "httpcore._async.http2": ("AsyncHTTP2Connection._send_request_headers",),
    "aiohttp.client": ("ClientSession._request",),
    "aiohttp.client_reqrep": ("ClientRequest.send", "ClientResponse.start", "ClientResponse.close", "ClientResponse.release"),
    "aiohttp.web_protocol": ("RequestHandler._handle_request",),
    "aiohttp.web_response": ("StreamResponse._write_headers",),
    "flask.app": ("Flask.__call__",),
    "django.core.handlers.wsgi": ("WSGIHandler.__call__",),
    "django.core.handlers.asgi": ("ASGIHandler.__call__",),
    "starlette.applications": ("Starlette.__call__",),
    "quart.app": ("Quart.__call__",),
    "litestar.app": ("Litestar.__call__",),
    "falcon.app": ("App.__call__",),
    "pyramid.router": ("Router.__call__",),
    "bottle": ("Bottle.__call__",),
    "uvicorn.protocols.http.h11_impl": ("RequestResponseCycle.run_asgi",),
    "uvicorn.protocols.http.httptools_impl": ("RequestResponseCycle.run_asgi",),
    "hypercorn.app_wrappers": ("ASGIWrapper.__call__",),
    "daphne.server": ("Server.create_application",),
    "gunicorn.asgi.protocol": ("ASGIProtocol._handle_http_request", "ASGIProtocol._handle_http2_request"),
    "gunicorn.workers.base_async": ("AsyncWorker.handle_request", "AsyncWorker.handle_http2_request"),
    "gunicorn.workers.gthread": ("ThreadWorker.handle_request", "ThreadWorker.handle_http2_request"),
    "gunicorn.workers.sync": ("SyncWorker.handle_request",),
    "waitress.task": ("WSGITask.execute",),
    "cheroot.wsgi": ("Gateway.respond",),
    "werkzeug.serving": ("WSGIRequestHandler.run_wsgi",),
    "wsgiref.handlers": ("BaseHandler.run",),
    "http.server": (
        "HTTPServer.server_bind",
        "BaseHTTPRequestHandler.handle_one_request",
        "BaseHTTPRequestHandler.parse_request",
        "BaseHTTPRequestHandler.end_headers",
    ),
    "xmlrpc.server": ("SimpleXMLRPCServer.__init__",),
    "grpclib.client": ("Channel.__connect__",),
    "grpclib.server": ("Server.start",),
    "tornado.httpserver": ("HTTPServer.start_request",),
    "sanic.server.protocols.base_protocol": ("SanicProtocol.__init__",),
}
"""The methods to replace, by module. Those of servers are for applications without a framework."""
JOINING = frozenset(
    {
        "HTTPAdapter.send",
        "HTTPServer.server_bind",
        "SimpleXMLRPCServer.__init__",
        "HTTPTransport.handle_request",
        "AsyncHTTPTransport.handle_async_request",
        "ClientSession._request",
        "RequestHandler._handle_request",
        "Flask.__call__",
        "WSGIHandler.__call__",
        "ASGIHandler.__call__",
        "Starlette.__call__",
        "Quart.__call__",
        "Litestar.__call__",
        "App.__call__",
        "Router.__call__",
        "Bottle.__call__",
        "RequestResponseCycle.run_asgi",
        "ASGIWrapper.__call__",
        "Server.create_application",
        "ASGIProtocol._handle_http_request",
        "ASGIProtocol._handle_http2_request",
        "AsyncWorker.handle_request",
        "AsyncWorker.handle_http2_request",
        "ThreadWorker.handle_request",
        "ThreadWorker.handle_http2_request",
        "SyncWorker.handle_request",
        "WSGITask.execute",
        "Gateway.respond",
        "WSGIRequestHandler.run_wsgi",
        "BaseHandler.run",
        "Channel.__connect__",
        "Server.start",
        "HTTPServer.start_request",
        "SanicProtocol.__init__",
    }
)
"""The methods where a request begins, or a server is made. A request of ``http.client`` makes no process join: the tools that a
service starts, such as pip, use it as well."""
Replacement = Callable[..., Any]
"""Called with the original method and its arguments."""
_ASGI = ("self", "scope", "receive", "send")


_FORKS = "ForkingMixIn"


def forks(server: object) -> bool:
    """Whether this is a server that forks for each request: the agent's session would have to end and begin again each time."""
    return any(one.__name__ == _FORKS for one in type(server).__mro__)


class Hook:
    """One replaced method."""

    def __init__(self, owner: type, name: str, *, joins: bool) -> None:
        """``joins``: a request begins here, so the process joins when the method is called."""
        self.key = f"{owner.__name__}.{name}"
        self.replacement: Replacement | None = None
        """None until the process has joined."""
        self._owner = owner
        self._name = name
        self._joins = joins
        self._inherited = name not in vars(owner)
        self.original: Any = getattr(owner, name)
        self.wrapper = self._wrap()

    def place(self) -> None:
        """Replace the method by the wrapper."""
        setattr(self._owner, self._name, self.wrapper)

    def remove(self) -> None:
        """Restore the method; if the wrapper was wrapped in turn, it stays and calls the original."""
        self.replacement = None
        if vars(self._owner).get(self._name) is self.wrapper:
            if self._inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self.original)

    def _current(self, args: tuple[Any, ...]) -> Replacement | None:
        """The replacement, after joining the process if that is due."""
        if self.replacement is None and self._joins and not forks(args[0]):
            _attach()
        return self.replacement

    def _wrap(self) -> Any:
        original = self.original

        @functools.wraps(original)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            other = self._current(args)
            return await (original(*args, **kwargs) if other is None else other(original, *args, **kwargs))

        @functools.wraps(original)
        async def asgi(app: Any, scope: Any, receive: Any, send: Any) -> Any:
            other = self._current((app,))
            return await (original(app, scope, receive, send) if other is None else other(original, app, scope, receive, send))

        @functools.wraps(original)
        def plain(*args: Any, **kwargs: Any) -> Any:
            other = self._current(args)
            return original(*args, **kwargs) if other is None else other(original, *args, **kwargs)

        if tuple(inspect.signature(original).parameters) == _ASGI:  # uvicorn detects ASGI by a call with wrong arguments
            return asgi
        return asynchronous if inspect.iscoroutinefunction(original) else plain


class _State:
    """The hooks of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.attach: Callable[[], object] | None = None
        self.finder: Finder | None = None
        self.hooks: dict[tuple[str, str], Hook] = {}
        self.replacements: Callable[[str], Replacement | None] | None = None


_STATE = _State()


def join_when_used(attach: Callable[[], object]) -> None:
    """Call ``attach`` once, just before the first request is made or served."""
    with _STATE.lock:
        _STATE.attach = attach
    _place_all()


def install(replacements: Callable[[str], Replacement | None]) -> Callable[[], None]:
    """Replace each method by what ``replacements`` returns for its name (``HTTPAdapter.send``). Returns an undo function.

    ``replacements`` is called for a method only once its module is imported.
    """
    with _STATE.lock:
        _STATE.attach, _STATE.replacements = None, replacements
    _place_all()
    with _STATE.lock:
        for hook in _STATE.hooks.values():
            hook.replacement = replacements(hook.key)
    return _remove_all


def _place_all() -> None:
    for name in PLACES:
        if name in sys.modules:
            _place(sys.modules[name])
    with _STATE.lock:
        if _STATE.finder is None:
            _STATE.finder = after_import(PLACES, _place)


def _place(module: ModuleType) -> None:
    with _STATE.lock:
        if _STATE.attach is None and _STATE.replacements is None:
            return
        for place in PLACES[module.__name__]:
            owner_name, _, name = place.partition(".")
            owner = getattr(module, owner_name, None)
            if isinstance(owner, type) and hasattr(owner, name) and (module.__name__, place) not in _STATE.hooks:
                hook = Hook(owner, name, joins=place in JOINING)
                _STATE.hooks[module.__name__, place] = hook
                if _STATE.replacements is not None:
                    hook.replacement = _STATE.replacements(hook.key)
                hook.place()


def _remove_all() -> None:
    with _STATE.lock:
        _STATE.replacements = None
        hooks = list(_STATE.hooks.values())
        _STATE.hooks.clear()
        finder, _STATE.finder = _STATE.finder, None
        if finder is not None and finder in sys.meta_path:
            sys.meta_path.remove(finder)
    for hook in hooks:
        hook.remove()


def _attach() -> None:
    with _STATE.lock:
        attach, _STATE.attach = _STATE.attach, None
    if attach is not None:  # not under the lock: meanwhile other threads' requests go on unrecorded
        attach()
