"""Shared by the two shells for ``httpx``: reads its requests and replies, and writes our headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stilltrue.http.clients.outgoing_request import HttpCall, Requests, total_of, writing
from stilltrue.http.headers import OURS_BYTES, STAMP
from stilltrue.model import PartyName

_PORTS = {"http": 80, "https": 443}
_COMPLETE_BODY = "ByteStream"
"""The class of request bodies that are complete: no code of the application runs to produce them."""
_CONNECT = b"CONNECT"


def begin(requests: Requests, transport: Any, request: Any, now: Callable[[], PartyName | None]) -> HttpCall | None:
    """Begin a call for an ``httpx.Request``; None if it is not recorded."""
    try:
        url, timeouts = request.url, request.extensions.get("timeout") or {}
        host = f"{url.host}:{url.port or _PORTS.get(url.scheme, 0)}"
        timeout = total_of(*(timeouts.get(name) for name in ("connect", "write", "pool", "read")))
        verb, target = str(request.method), url.path
        waiting = type(request.stream).__name__ == _COMPLETE_BODY
    except Exception:  # noqa: BLE001 - fail open
        requests.session.live.report_failure("reading a request")
        return None
    return requests.begin(verb, target, host, owner=transport, timeout=timeout, now=now, closes=True, waiting=waiting)


def receive_head(call: HttpCall, response: Any, recorded: Callable[[Any, HttpCall], Any]) -> None:
    """Handle the head of a reply: hide the stamp from the application, and make the call end with the body.

    ``recorded`` wraps the body in one that ends the call.
    """
    try:
        stamp: str | None = response.headers.get(STAMP)
        if stamp is not None:
            del response.headers[STAMP]
        call.head_received(response.status_code, stamp)
        response.stream = recorded(response.stream, call)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("reading a reply")
        call.end()


def add_headers(connection: Any, args: Any, kwargs: Any) -> None:
    """Add our headers to the ``httpcore`` request that is about to be written to ``connection``."""
    call = writing.get()
    if call is None:
        return
    try:
        request = kwargs["request"] if "request" in kwargs else args[0]
        if request.method == _CONNECT:  # asks a proxy for a tunnel
            return
        info = connection._network_stream.get_extra_info  # noqa: SLF001 - the only way to the socket's addresses
        ours = ((name.encode(), value.encode()) for name, value in call.headers(info("client_addr"), info("server_addr")))
        request.headers = [pair for pair in request.headers if pair[0].lower() not in OURS_BYTES] + list(ours)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("stamping a request")
