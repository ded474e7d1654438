"""ASGI: a middleware that records when requests begin and end, and stamps the replies.

The server runs the application in a task of its own for each request, which is the party. WebSockets and the lifespan are
left alone.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from stilltrue.http.headers import ADDRESS, OURS_BYTES, PROXIED_BYTES, STAMP, address_text
from stilltrue.http.incoming import HttpContext, begin_reply, receive_request, seconds_max
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import Session

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
SERVED = "stilltrue.served"
"""In the scope of a request that is served here already: an application mounted in another is a part of that."""
_TELLING = PROXIED_BYTES.union(OURS_BYTES)
_STAMP_BYTES, _ADDRESS_BYTES = STAMP.encode(), ADDRESS.encode()
_CANCELLING = ("daphne", "django.core.handlers.asgi")
"""What cancels handlers when their callers go away."""


class ASGIMiddleware:
    """An ASGI application that records the requests of another one."""

    def __init__(self, app: Callable[..., Any], session: Session) -> None:
        """``app`` serves the requests."""
        self._app = app
        self._session = session

    @classmethod
    def before(cls, app: Any, session: Session) -> Any:
        """``app`` as a server is to call it; itself if this session records it already, without another one's recording."""
        while type(app) is cls:
            if app._session is session:  # noqa: SLF001 - another of this class
                return app
            app = app._app  # noqa: SLF001 - as above
        return cls(app, session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        """Serve one request."""
        return await serve(self._session, self._app, scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        if name == "_app":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._app, name)


async def serve(session: Session, app: Callable[..., Any], scope: Scope, receive: Receive, send: Send) -> Any:
    """Serve one request, or pass on whatever else comes."""
    if scope.get("type") != "http" or SERVED in scope:
        return await app(scope, receive, send)
    call = _receive(session, scope)
    if call is None:
        return await app(scope, receive, send)
    limit = seconds_max(send)
    context = HttpContext(_headers(scope), limit)
    call.begin(context, interruptible=True if limit is not None else None)
    root = call.enter_task()
    try:
        running = app(scope, _receiving(call, receive), _sending(call, send))
        if root is not None and inspect.iscoroutine(running):
            root.coroutine = running
        result = await running
    except BaseException:
        _end(call, root, failed=True)
        raise
    _end(call, root)
    return result


def _receive(session: Session, scope: Scope) -> IncomingCall | None:
    try:
        headers = scope["headers"]
        telling = [pair for pair in headers if pair[0] in _TELLING]
        ours = [pair for pair in telling if pair[0] in OURS_BYTES]
        if ours:
            scope["headers"] = type(headers)([pair for pair in headers if pair[0] not in OURS_BYTES])
        scope[SERVED] = True
        return receive_request(
            session,
            scope["method"],
            scope["path"] or "/",
            stamps=[value.decode("latin-1") for name, value in ours if name == _STAMP_BYTES],
            claimed=next((value.decode("latin-1") for name, value in ours if name == _ADDRESS_BYTES), ""),
            peer=address_text(scope.get("client")),
            proxied=len(telling) > len(ours),
            interruptible=any(name in sys.modules for name in _CANCELLING),
        )
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("a request arrives")
        return None


def _headers(scope: Scope) -> Iterator[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])


def _end(call: IncomingCall, root: Root | None, *, failed: bool = False) -> None:
    """The reply is whole, or will never be; what the task still does is its own business."""
    if not call.over:
        call.end((), failed=failed)
    if root is not None and call.session.parties.root.get() is root:
        call.session.parties.root.set(None)


def _leave_task(call: IncomingCall) -> None:
    """What the task does from now on (a background task of Starlette's) is its own business: it is a party of its own."""
    root, variable = call.root, call.session.parties.root
    if root is not None and variable.get() is root and root.task is asyncio.current_task():
        variable.set(None)


def _receiving(call: IncomingCall, receive: Receive) -> Receive:
    """The rest of the request, or the news that the caller has gone: who waits for it waits for the caller."""

    async def recorded() -> Any:
        if call.over or call.served.caller is None:
            return await receive()
        wait = call.begin_wait()
        try:
            message = await receive()
        finally:
            call.end_wait(wait)
        if isinstance(message, dict) and message.get("type") == "http.disconnect":
            call.hang_up()
        return message

    return recorded


def _sending(call: IncomingCall, send: Send) -> Send:
    """The reply, with the stamp among its headers."""

    async def recorded(message: Any) -> None:
        try:
            kind = message["type"]
            if kind == "http.response.start":
                message = _stamped(call, message)
            elif kind == "http.response.body" and not message.get("more_body", False):
                if not call.over:
                    call.end(())
                _leave_task(call)
        except Exception:  # noqa: BLE001 - fail open: the server refuses what is wrong
            call.live.report_failure("a reply is stamped")
        await send(message)

    return recorded


def _stamped(call: IncomingCall, message: dict[str, Any]) -> dict[str, Any]:
    pair = begin_reply(call, int(message["status"]))
    headers = list(message.get("headers") or ())
    plain = [one for one in headers if bytes(one[0]).lower() != _STAMP_BYTES]
    if pair is None and len(plain) == len(headers):
        return message
    ours = [] if pair is None else [(pair[0].encode(), pair[1].encode())]
    return {**message, "headers": [*plain, *ours]}
