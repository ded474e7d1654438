"""Records when requests to ``aiohttp.web`` begin and end, and stamps the replies.

The server handles each request in a task of its own, which is the party. WebSockets are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from stilltrue.http.headers import ADDRESS, OURS, PROXIED, STAMP, address_text
from stilltrue.http.incoming_request import HttpContext, begin_reply, receive_request, seconds_max
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.session import Session

_OURS_BYTES = frozenset(name.encode() for name in OURS)
_serving: ContextVar[tuple[Any, IncomingCall] | None] = ContextVar("stilltrue_aiohttp_serving", default=None)
"""The request that the current task handles, and its call."""


class RecordedAiohttpServer:
    """The replacements for methods of ``aiohttp.web``."""

    def __init__(self, session: Session, start: Callable[[], object]) -> None:
        """``start`` makes the agent connect; idempotent."""
        self._session = session
        self._start = start

    async def handle(self, original: Callable[..., Any], protocol: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``aiohttp.web_protocol.RequestHandler._handle_request``, which runs the handler and sends the reply."""
        self._start()
        call = _receive(self._session, protocol, request)
        if call is None:
            return await original(protocol, request, *args, **kwargs)
        limit = seconds_max()
        call.begin(HttpContext(_headers(request), limit), interruptible=True if limit is not None else None)
        root = call.enter_task()
        before = _serving.set((request, call))
        failed = True
        try:
            running = original(protocol, request, *args, **kwargs)
            if root is not None:
                root.coroutine = running
            result = await running
            failed = False
            return result
        finally:
            _serving.reset(before)
            if not call.over:
                call.end((), failed=failed)
            if root is not None and self._session.parties.root.get() is root:
                self._session.parties.root.set(None)

    async def write_headers(self, original: Callable[..., Any], response: Any) -> Any:
        """For ``aiohttp.web_response.StreamResponse._write_headers``: adds the stamp only while the headers are written."""
        request, call = _serving.get() or (None, None)
        if call is None or getattr(response, "_req", None) is not request:
            return await original(response)
        headers = response.headers
        try:
            pair = begin_reply(call, int(response.status))
            headers.popall(STAMP, None)
            if pair is not None:
                headers.add(*pair)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("stamping a reply")
        try:
            return await original(response)
        finally:
            headers.popall(STAMP, None)


def _receive(session: Session, protocol: Any, request: Any) -> IncomingCall | None:
    try:
        headers = request.headers
        if headers.get("Upgrade", "").lower() == "websocket":
            return None
        stamps, claimed = headers.getall(STAMP, []), headers.get(ADDRESS, "")
        proxied = any(name in headers for name in PROXIED)
        if stamps or claimed:
            _hide(request)
        transport = protocol.transport
        return receive_request(
            session,
            request.method,
            request.path or "/",
            stamps=stamps,
            claimed=claimed,
            peer="" if transport is None else address_text(transport.get_extra_info("peername")),
            proxied=proxied,
            interruptible=_cancels_handlers(protocol),
        )
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("receiving a request")
        return None


def _cancels_handlers(protocol: Any) -> bool:
    """Whether the server cancels a handler when its caller disconnects (``handler_cancellation``)."""
    manager = getattr(protocol, "_manager", None)
    return manager is None or bool(getattr(manager, "handler_cancellation", True))


def _hide(request: Any) -> None:
    """Hide our headers from the application."""
    message = request._message  # noqa: SLF001 - the application's view, here and below
    plain = message.headers.copy()
    for name in OURS:
        plain.popall(name, None)
    raw = tuple(pair for pair in message.raw_headers if bytes(pair[0]).lower() not in _OURS_BYTES)
    message = message._replace(headers=type(message.headers)(plain), raw_headers=raw)
    request._message, request._headers = message, message.headers  # noqa: SLF001
    for cached in ("headers", "raw_headers"):
        request._cache.pop(cached, None)  # noqa: SLF001


def _headers(request: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in request.headers.items())
