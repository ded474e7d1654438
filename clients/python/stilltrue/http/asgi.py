"""An ASGI middleware that records when requests begin and end, and stamps the replies.

The server runs each request in a task of its own, which is the party. WebSockets and the lifespan are not recorded.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from stilltrue.http.headers import ADDRESS, OURS_BYTES, PROXIED_BYTES, STAMP, address_text
from stilltrue.http.incoming_request import HttpContext, begin_reply, receive_request, seconds_max
from stilltrue.http.middleware import Middleware
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import Session

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
SERVED = "stilltrue.served"
"""Key in the scope of a recorded request, so that a mounted application is not recorded again."""
_RELEVANT = PROXIED_BYTES.union(OURS_BYTES)
_STAMP_BYTES, _ADDRESS_BYTES = STAMP.encode(), ADDRESS.encode()
_CANCELLING = ("daphne", "django.core.handlers.asgi")
"""Modules that cancel a handler when its caller disconnects."""


class ASGIMiddleware(Middleware):
    """An ASGI application that records the requests to another one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        """Serve one request."""
        return await serve(self._session, self._app, scope, receive, send)


async def serve(session: Session, app: Callable[..., Any], scope: Scope, receive: Receive, send: Send) -> Any:
    """Serve one request and record it; pass other connections on."""
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
        running = app(scope, _recorded_receive(call, receive), _recorded_send(call, send))
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
        relevant = [pair for pair in headers if pair[0] in _RELEVANT]
        ours = [pair for pair in relevant if pair[0] in OURS_BYTES]
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
            proxied=len(relevant) > len(ours),
            interruptible=any(name in sys.modules for name in _CANCELLING),
        )
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("receiving a request")
        return None


def _headers(scope: Scope) -> Iterator[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])


def _end(call: IncomingCall, root: Root | None, *, failed: bool = False) -> None:
    """End the call, whether its reply is complete or not; further work in the task is not part of the service."""
    if not call.over:
        call.end((), failed=failed)
    if root is not None and call.session.parties.root.get() is root:
        call.session.parties.root.set(None)


def _leave_task(call: IncomingCall) -> None:
    """Make the task a separate party from now on (it may run Starlette's background tasks, for example)."""
    root, variable = call.root, call.session.parties.root
    if root is not None and variable.get() is root and root.task is asyncio.current_task():
        variable.set(None)


def _recorded_receive(call: IncomingCall, receive: Receive) -> Receive:
    """``receive``, recorded as a wait for the caller: it returns more of the request, or that the caller is gone."""

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


def _recorded_send(call: IncomingCall, send: Send) -> Send:
    """``send``, with the stamp added to the reply's headers; the call ends with the last part of the body."""

    async def recorded(message: Any) -> None:
        try:
            kind = message["type"]
            if kind == "http.response.start":
                message = _stamped(call, message)
            elif kind == "http.response.body" and not message.get("more_body", False):
                if not call.over:
                    call.end(())
                _leave_task(call)
        except Exception:  # noqa: BLE001 - fail open: the server rejects an invalid message
            call.live.report_failure("stamping a reply")
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
