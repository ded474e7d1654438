"""What the two shells of ``httpx`` share: reading its requests and replies, and writing our headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stilltrue.http.clients.outgoing import HttpCall, Requests, total_of, writing
from stilltrue.http.headers import OURS_BYTES, STAMP
from stilltrue.model import PartyName

_PORTS = {"http": 80, "https": 443}
_AT_HAND = "ByteStream"
"""The class of bodies that need no code of the application."""
_CONNECT = b"CONNECT"


def begin(requests: Requests, transport: Any, request: Any, now: Callable[[], PartyName | None]) -> HttpCall | None:
    """Begin a call for an ``httpx.Request``; None: it is not recorded."""
    try:
        url, timeouts = request.url, request.extensions.get("timeout") or {}
        host = f"{url.host}:{url.port or _PORTS.get(url.scheme, 0)}"
        timeout = total_of(*(timeouts.get(name) for name in ("connect", "write", "pool", "read")))
        verb, target = str(request.method), url.path
        waiting = type(request.stream).__name__ == _AT_HAND
    except Exception:  # noqa: BLE001 - fail open
        requests.session.live.report_failure("a request is read")
        return None
    return requests.begin(verb, target, host, owner=transport, timeout=timeout, now=now, closes=True, waiting=waiting)


def headed(call: HttpCall, response: Any, recorded: Callable[[Any, HttpCall], Any]) -> None:
    """The head of a reply has come, without our stamp for those who read it; ``recorded`` makes a body that ends the call."""
    try:
        stamp: str | None = response.headers.get(STAMP)
        if stamp is not None:
            del response.headers[STAMP]
        call.headed(response.status_code, stamp)
        response.stream = recorded(response.stream, call)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("a reply is read")
        call.end()


def add(connection: Any, args: Any, kwargs: Any) -> None:
    """Add our headers to the request of httpcore's that is about to be written to ``connection``."""
    call = writing.get()
    if call is None:
        return
    try:
        request = kwargs["request"] if "request" in kwargs else args[0]
        if request.method == _CONNECT:  # it asks a proxy for a tunnel
            return
        told = connection._network_stream.get_extra_info  # noqa: SLF001 - it is told nowhere else
        ours = ((name.encode(), value.encode()) for name, value in call.headers(told("client_addr"), told("server_addr")))
        request.headers = [pair for pair in request.headers if pair[0].lower() not in OURS_BYTES] + list(ours)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("a request is stamped")
