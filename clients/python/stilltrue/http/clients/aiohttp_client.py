"""Records ``aiohttp``: each request that a ``ClientSession`` writes to a connection is a call of the task that makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from stilltrue.http.clients.outgoing_request import HttpCall, Requests, current_party
from stilltrue.http.headers import ADDRESS, STAMP

_COMPLETE_BODIES = ("BytesPayload", "StringPayload", "JsonPayload")
"""The classes of request bodies that are complete: no code of the application runs to produce them."""
_deadline: ContextVar[float | None] = ContextVar("stilltrue_aiohttp_deadline", default=None)
"""When (by the loop's clock) the session times the current task's request out, redirects included."""


class RecordedAiohttp:
    """The replacements for methods of ``aiohttp``."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests
        self._open: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """Calls whose reply has not been read to its end, by response."""

    async def request(self, original: Callable[..., Any], session: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``aiohttp.ClientSession._request``, the only place that knows the total timeout."""
        total = _total(session, kwargs)
        before = _deadline.set(None if total is None else asyncio.get_running_loop().time() + total)
        try:
            return await original(session, *args, **kwargs)
        finally:
            _deadline.reset(before)

    async def send(self, original: Callable[..., Any], request: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``aiohttp.ClientRequest.send``, which writes the request to a connection."""
        call = self._begin(request, connection)
        if call is None:
            return await original(request, connection, *args, **kwargs)
        _add_headers(request, connection, call)
        try:
            response = await original(request, connection, *args, **kwargs)
        except BaseException:
            call.end()
            raise
        finally:
            _remove_headers(request)
        try:
            self._open[response] = call
        except TypeError:  # the application's own response class, without weak references
            call.end()
        return response

    async def start(self, original: Callable[..., Any], response: Any, connection: Any) -> Any:
        """For ``aiohttp.ClientResponse.start``, which waits for the head of the reply."""
        call = self._open.get(response)
        if call is None:
            return await original(response, connection)
        try:
            started = await original(response, connection)
        except BaseException:
            call.end()
            raise
        try:
            call.head_received(response.status, _hide_stamp(response))
            response.content.on_eof(call.end)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("reading a reply")
            call.end()
        return started

    def close(self, original: Callable[..., Any], response: Any) -> Any:
        """For ``aiohttp.ClientResponse.close`` and ``release``."""
        call = self._open.pop(response, None)
        if call is not None:
            call.end()
        return original(response)

    def _begin(self, request: Any, connection: Any) -> HttpCall | None:
        requests = self._requests
        try:
            url, loop = request.url, asyncio.get_running_loop()
            protocol = connection.protocol
            deadline, idle = _deadline.get(), getattr(protocol, "_read_timeout", None)
            timeouts = [one for one in (None if deadline is None else deadline - loop.time(), idle) if one]
            host, verb, target = f"{url.host}:{url.port}", str(request.method), url.path
            owner = connection._connector  # noqa: SLF001 - it owns the connections
        except Exception:  # noqa: BLE001 - fail open
            requests.session.live.report_failure("reading a request")
            return None
        now, timeout = current_party(requests.session.parties), min(timeouts, default=None)
        return requests.begin(
            verb, target, host, owner=owner, timeout=timeout, now=now, closes=True, waiting=_has_complete_body(request)
        )


def _has_complete_body(request: Any) -> bool:
    """Whether no code of the application runs to produce the request's body."""
    body = getattr(request, "_body", None) if hasattr(request, "_body") else request.body
    return not body or isinstance(body, bytes) or type(body).__name__ in _COMPLETE_BODIES


def _total(session: Any, kwargs: Any) -> float | None:
    """The total timeout of a request in seconds; None: no limit."""
    given = kwargs.get("timeout", session)
    if given is None or isinstance(given, int | float):
        return given or None
    known = given if hasattr(given, "total") else getattr(session, "_timeout", None)
    total = getattr(known, "total", None)
    return total if isinstance(total, int | float) and total > 0 else None


def _add_headers(request: Any, connection: Any, call: HttpCall) -> None:
    try:
        transport = connection.transport
        address, peer = (None if transport is None else transport.get_extra_info(end) for end in ("sockname", "peername"))
        for name in (STAMP, ADDRESS):
            request.headers.popall(name, None)
        for name, value in call.headers(address, peer):
            request.headers.add(name, value)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("stamping a request")


def _remove_headers(request: Any) -> None:
    """Hide our headers from the application once they are written."""
    for name in (STAMP, ADDRESS):
        request.headers.popall(name, None)


def _hide_stamp(response: Any) -> str | None:
    """Remove the stamp from the headers that the application sees, and return it."""
    headers = response._headers  # noqa: SLF001 - the application's view
    stamp: str | None = headers.get(STAMP)
    if stamp is not None:
        plain = headers.copy()
        plain.popall(STAMP, None)
        response._cache.pop("headers", None)  # noqa: SLF001 - as above
        response._headers = type(headers)(plain)  # noqa: SLF001 - as above
        raw = response._raw_headers  # noqa: SLF001 - as above
        response._raw_headers = tuple(pair for pair in raw if pair[0].lower() != STAMP.encode())  # noqa: SLF001 - as above
    return stamp
