"""Records ``http.client``, which ``urllib.request``, ``xmlrpc.client`` and ``urllib3`` use.

Each request is a call of the thread that makes it. Those of ``requests``, which uses it as well, are recorded by
:mod:`stilltrue.http.clients.requests_client`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from stilltrue.http.clients.outgoing_request import HttpCall, Requests, writing
from stilltrue.http.headers import OURS_BYTES, STAMP


class RecordedHttpClient:
    """The replacements for methods of ``http.client``."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests
        self._sent: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """Calls whose reply has not been asked for, by connection."""
        self._open: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """Calls whose reply has not been read to its end, by response."""

    def endheaders(self, original: Callable[..., Any], connection: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``HTTPConnection.endheaders``, the last moment to add headers; the connection is known."""
        call = writing.get() or self._begin(connection)
        if call is None:
            return original(connection, *args, **kwargs)
        try:
            if connection.sock is None and connection.auto_open:
                connection.connect()  # as the original does before it writes anything
            self._add_headers(connection, call)
            return original(connection, *args, **kwargs)
        except BaseException:
            if _taken(self._sent, connection) is not None:
                call.end()
            raise

    def getresponse(self, original: Callable[..., Any], connection: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``HTTPConnection.getresponse``, which waits for the head of the reply."""
        call = _taken(self._sent, connection)
        if call is None:
            return original(connection, *args, **kwargs)
        self._wait(connection, call)
        try:
            response = original(connection, *args, **kwargs)
        except BaseException:
            call.end()
            raise
        self._receive_head(call, response)
        return response

    def close_connection(self, original: Callable[..., Any], connection: Any) -> Any:
        """For ``HTTPConnection.close``: the reply to a request that was sent is not read any more."""
        call = _taken(self._sent, connection)
        if call is not None:
            call.end()
        return original(connection)

    def close_response(self, original: Callable[..., Any], response: Any) -> Any:
        """For ``HTTPResponse._close_conn``, called when a body has been read to its end, or is closed."""
        call = _taken(self._open, response)
        if call is not None:
            call.end()
        return original(response)

    def _begin(self, connection: Any) -> HttpCall | None:
        """Begin a call for the request whose headers ``connection`` has; the one before, if any, is over."""
        requests = self._requests
        try:
            before = self._sent.pop(connection, None)
            if before is not None:
                before.end()
            verb, target = _request_line(connection)
            host = f"{connection.host}:{connection.port}"
        except Exception:  # noqa: BLE001 - fail open
            requests.session.live.report_failure("reading a request")
            return None
        now = requests.session.parties.current
        call = requests.begin(verb, target, host, owner=connection, timeout=None, now=now, closes=True, waiting=False)
        if call is not None:
            self._sent[connection] = call
        return call

    @staticmethod
    def _add_headers(connection: Any, call: HttpCall) -> None:
        try:
            lines = connection._buffer  # noqa: SLF001 - the header lines
            lines[:] = [line for line in lines if not line[:20].lower().startswith(OURS_BYTES)]
            for name, value in call.headers(*_ends(connection.sock)):
                connection.putheader(name, value)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("stamping a request")

    def _wait(self, connection: Any, call: HttpCall) -> None:
        """The party that made the call waits, unless another thread made it. The socket's timeout bounds the wait."""
        try:
            made, sock = call.made, connection.sock
            if sock is not None and made.party is not None and made.party == self._requests.session.parties.current():
                call.live.awaits(made, sock.gettimeout())
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("waiting for a reply")

    def _receive_head(self, call: HttpCall, response: Any) -> None:
        """Handle the head of a reply and hide the stamp; a reply without a body is over."""
        try:
            stamp = response.headers.get(STAMP)
            del response.headers[STAMP]
            call.head_received(int(response.status), stamp)
            if response.isclosed():
                call.end()
            else:
                self._open[response] = call
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("reading a reply")
            call.end()


def _taken(calls: WeakKeyDictionary[Any, HttpCall], thing: Any) -> HttpCall | None:
    """The call of a connection or response, which it no longer has. One whose class has no hash has none."""
    try:
        return calls.pop(thing, None)
    except TypeError:
        return None


def _ends(sock: Any) -> tuple[object, object]:
    """The addresses of a connection, ours first; None for both if the other end has closed it, or it is no socket."""
    try:
        return sock.getsockname(), sock.getpeername()
    except (OSError, AttributeError):
        return None, None


def _request_line(connection: Any) -> tuple[str, str]:
    """The verb and the path of the request whose headers ``connection`` has."""
    verb, _, rest = connection._buffer[0].decode("ascii", "replace").partition(" ")  # noqa: SLF001 - the header lines
    target = rest.rpartition(" ")[0]
    return verb, target if target.startswith("/") else urlsplit(target).path
