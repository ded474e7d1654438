"""A WSGI middleware that records when requests begin and end, and stamps the replies.

The server runs the application in the thread that took the request, which is the party. Requests that the server has not yet
passed to the application are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stilltrue.http.headers import ADDRESS, PROXIED, STAMP, address_text
from stilltrue.http.incoming_request import HttpContext, begin_reply, receive_request, seconds_max
from stilltrue.http.middleware import Middleware
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.session import Session


def _key(name: str) -> str:
    return f"HTTP_{name.upper().replace('-', '_')}"


_STAMP, _ADDRESS = _key(STAMP), _key(ADDRESS)
_PROXIED = tuple(_key(name) for name in PROXIED)
_SOCKETS = ("gunicorn.socket", "werkzeug.socket")
_INNER = ("stream", "raw", "_sock", "_read", "__self__")
"""The attributes by which servers' streams refer to the stream or socket inside."""
STREAMS_MAX = 8


class WSGIMiddleware(Middleware):
    """A WSGI application that records the requests to another one."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Serve one request."""
        return serve(self._session, self._app, environ, start_response)


def serve(session: Session, app: Callable[..., Any], environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
    """Serve one request and record it; a mounted application is part of the outer request, and not recorded again."""
    if session.parties.here.serving is not None:
        return app(environ, start_response)
    call = _receive(session, environ)
    if call is None:
        return app(environ, start_response)
    limit = seconds_max()
    context = HttpContext(_headers(environ), limit)
    call.begin(context, interruptible=limit is not None)
    try:
        with call.acting():
            body = app(environ, _stamped_start_response(call, start_response))
    except BaseException:
        call.end((), failed=True)
        raise
    if _is_complete(body, environ):
        call.end(())
        return body
    return _Body(body, call, context)


def _receive(session: Session, environ: dict[str, Any]) -> IncomingCall | None:
    try:
        stamp, claimed = environ.pop(_STAMP, None), environ.pop(_ADDRESS, "")
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        return receive_request(
            session,
            environ["REQUEST_METHOD"],
            path.encode("latin-1", "replace").decode("utf-8", "replace") or "/",
            stamps=[] if stamp is None else [stamp],
            claimed=claimed,
            peer="" if stamp is None else _peer(environ),
            proxied=any(name in environ for name in _PROXIED),
            interruptible=False,
        )
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("receiving a request")
        return None


def _peer(environ: dict[str, Any]) -> str:
    """The peer address of the connection; empty if unknown."""
    if environ.get("REMOTE_PORT"):
        return address_text((environ.get("REMOTE_ADDR", ""), environ["REMOTE_PORT"]))
    # Django's and Python's own servers do not give the port: look for the socket
    one: Any = next((environ[name] for name in _SOCKETS if name in environ), environ.get("wsgi.input"))
    for _ in range(STREAMS_MAX):
        if one is None or hasattr(one, "getpeername"):
            break
        one = next((inner for name in _INNER if (inner := getattr(one, name, None)) is not None), None)
    return "" if one is None or not hasattr(one, "getpeername") else address_text(one.getpeername())


def _headers(environ: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("HTTP_TRACEPARENT", "HTTP_B3", "HTTP_X_B3_TRACEID"):
        if key in environ:
            yield key[5:].replace("_", "-").lower(), environ[key]


def _stamped_start_response(call: IncomingCall, start_response: Callable[..., Any]) -> Callable[..., Any]:
    """``start_response`` with our stamp, and no other, among the headers."""

    def stamped(status: str, headers: Any, *exc_info: Any) -> Any:
        try:
            pair = begin_reply(call, int(status[:3]))
            if type(headers) is list:
                plain = [one for one in headers if one[0].lower() != STAMP]
                headers = plain if pair is None and len(plain) < len(headers) else headers
                headers = headers if pair is None else [*plain, pair]
        except Exception:  # noqa: BLE001 - fail open: the server rejects invalid arguments
            call.live.report_failure("stamping a reply")
        return start_response(status, headers, *exc_info)

    return stamped


def _is_complete(body: Any, environ: dict[str, Any]) -> bool:
    """Whether no code of the application runs to produce the body. It is then passed on as is: servers check its type."""
    wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(body, list | tuple) or hasattr(body, "__len__"):
        return True
    return isinstance(wrapper, type) and isinstance(body, wrapper)


class _Body:
    """A body that the application is still producing; the request is being served until it ends."""

    def __init__(self, inner: Any, call: IncomingCall, context: HttpContext) -> None:
        self._inner = inner
        self._parts: Any = None
        self._context = context
        self.call = call

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> Any:
        call = self.call
        try:
            with call.acting():
                if self._parts is None:
                    self._parts = iter(self._inner)
                return next(self._parts)
        except StopIteration:
            call.end(())
            raise
        except BaseException:
            call.end((), failed=True)
            raise

    def close(self) -> None:
        """As WSGI's ``close``, which the server calls at the end of the request."""
        call = self.call
        try:
            close = getattr(self._inner, "close", None)
            if close is not None:
                with call.acting():
                    close()
        finally:
            call.end(())

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # missing while the object is being copied
            raise AttributeError(name)
        return getattr(self._inner, name)
