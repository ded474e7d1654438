"""Records when requests to ``http.server`` begin and end, and stamps the replies; ``xmlrpc.server`` uses it as well.

Rules:

1. The thread that handles a request is its party. The request begins when its headers have been read, and ends when its
   handler method has returned.
2. The handlers of WSGI servers (wsgiref, Django, werkzeug) are left to the middleware of their application.
3. A server that forks for each request is not recorded, and makes no process join: its children would have to join one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from stilltrue.http.headers import ADDRESS, OURS, PROXIED, STAMP, address_text, path_of
from stilltrue.http.incoming_request import HttpContext, begin_reply, receive_request
from stilltrue.http.instrumented_methods import forks
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.session import Session

_STATUS_MIN = 200
"""What comes before is not the reply: 100 asks for the body."""
_OF_WSGI = "run_wsgi"
_STAMP_LINE = f"{STAMP}:".encode()


class _Exchange:
    """One request that a handler reads, serves and answers."""

    __slots__ = ("_context", "call", "handler", "serving")

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.call: IncomingCall | None = None
        self._context: HttpContext | None = None
        self.serving = ExitStack()

    def begin(self, call: IncomingCall) -> None:
        headers = self.handler.headers
        self.call, self._context = call, HttpContext([(name.lower(), value) for name, value in headers.items()], None)
        call.begin(self._context)
        self.serving.enter_context(call.acting())

    def end(self, *, failed: bool) -> None:
        self.serving.close()
        if self.call is not None:
            self.call.end((), failed=failed)


class _Current(threading.local):
    """The exchange that the current thread is in."""

    exchange: _Exchange | None = None


class RecordedHttpServer:
    """The replacements for methods of ``http.server``."""

    def __init__(self, session: Session, start: Callable[[], object]) -> None:
        """``start`` makes the agent connect; idempotent."""
        self._session = session
        self._start = start
        self._current = _Current()

    def make_server(self, original: Callable[..., Any], server: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``HTTPServer.server_bind`` and ``SimpleXMLRPCServer.__init__``: a process that makes a server joins."""
        self._start()
        return original(server, *args, **kwargs)

    def handle(self, original: Callable[..., Any], handler: Any) -> Any:
        """For ``BaseHTTPRequestHandler.handle_one_request``, which reads a request and calls the method for its verb."""
        if (
            self._session.parties.here.serving is not None
            or hasattr(type(handler), _OF_WSGI)
            or forks(getattr(handler, "server", None))
        ):
            return original(handler)
        before = self._current.exchange
        call = self._current.exchange = _Exchange(handler)  # the name by which looks find it
        failed = True
        try:
            result = original(handler)
            failed = False
            return result
        finally:
            self._current.exchange = before
            call.end(failed=failed)

    def parse(self, original: Callable[..., Any], handler: Any) -> Any:
        """For ``BaseHTTPRequestHandler.parse_request``, which reads the headers; true if the request is valid."""
        valid = original(handler)
        exchange = self._current.exchange
        if valid and exchange is not None and exchange.handler is handler and exchange.call is None:
            try:
                call = self._receive(handler)
                if call is not None:
                    exchange.begin(call)
            except Exception:  # noqa: BLE001 - fail open
                self._session.live.report_failure("receiving a request")
        return valid

    def end_headers(self, original: Callable[..., Any], handler: Any) -> Any:
        """For ``BaseHTTPRequestHandler.end_headers``, the last moment to add the stamp."""
        exchange = self._current.exchange
        call = exchange.call if exchange is not None and exchange.handler is handler else None
        if call is not None:
            try:
                _stamp(handler, call)
            except Exception:  # noqa: BLE001 - fail open
                call.live.report_failure("stamping a reply")
        return original(handler)

    def _receive(self, handler: Any) -> IncomingCall | None:
        headers, target = handler.headers, handler.path
        stamps, claimed = headers.get_all(STAMP, []), headers.get(ADDRESS, "")
        for name in OURS:
            del headers[name]
        return receive_request(
            self._session,
            handler.command,
            path_of(target if target.startswith("/") else urlsplit(target).path),
            stamps=stamps,
            claimed=claimed,
            peer=address_text(handler.client_address),
            proxied=any(name in headers for name in PROXIED),
            interruptible=False,
        )


def _stamp(handler: Any, call: IncomingCall) -> None:
    """Add our stamp, and no other, to the headers about to be sent."""
    lines = getattr(handler, "_headers_buffer", None)
    if not lines:  # HTTP/0.9 has no headers
        return
    status = int(lines[0].split(None, 2)[1])
    if status < _STATUS_MIN:
        return
    lines[1:] = [line for line in lines[1:] if not line.lower().startswith(_STAMP_LINE)]
    pair = begin_reply(call, status)
    if pair is not None:
        handler.send_header(*pair)
