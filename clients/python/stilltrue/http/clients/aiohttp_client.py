"""``aiohttp``: each request that a ``ClientSession`` writes to a connection is a call of the task that makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from stilltrue.http.clients.outgoing import HttpCall, Requests
from stilltrue.http.headers import ADDRESS, STAMP
from stilltrue.http.tasks import current_party

_AT_HAND = ("BytesPayload", "StringPayload", "JsonPayload")
"""The classes of bodies that need no code of the application."""
_ends: ContextVar[float | None] = ContextVar("stilltrue_aiohttp_ends", default=None)
"""When (the loop's time) the session ends the request that this task makes, redirects and all."""


class RecordedAiohttp:
    """The replaced functions of ``aiohttp``."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests
        self._open: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """By the response, calls whose body has not been read."""

    async def request(self, original: Callable[..., Any], session: Any, *args: Any, **kwargs: Any) -> Any:
        """``aiohttp.ClientSession._request``: the timeout is known here alone."""
        total = _total(session, kwargs)
        before = _ends.set(None if total is None else asyncio.get_running_loop().time() + total)
        try:
            return await original(session, *args, **kwargs)
        finally:
            _ends.reset(before)

    async def send(self, original: Callable[..., Any], request: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        """``aiohttp.ClientRequest.send``: writes the request to a connection."""
        call = self._begin(request, connection)
        if call is None:
            return await original(request, connection, *args, **kwargs)
        _put(request, connection, call)
        try:
            response = await original(request, connection, *args, **kwargs)
        except BaseException:
            call.end()
            raise
        finally:
            _take(request)
        try:
            self._open[response] = call
        except TypeError:  # a class of the application's, which allows no weak references
            call.end()
        return response

    async def start(self, original: Callable[..., Any], response: Any, connection: Any) -> Any:
        """``aiohttp.ClientResponse.start``: waits for the head of the reply."""
        call = self._open.get(response)
        if call is None:
            return await original(response, connection)
        try:
            started = await original(response, connection)
        except BaseException:
            call.end()
            raise
        try:
            call.headed(response.status, _hide_stamp(response))
            response.content.on_eof(call.end)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("a reply is read")
            call.end()
        return started

    def close(self, original: Callable[..., Any], response: Any) -> Any:
        """``aiohttp.ClientResponse.close`` and ``release``."""
        call = self._open.pop(response, None)
        if call is not None:
            call.end()
        return original(response)

    def _begin(self, request: Any, connection: Any) -> HttpCall | None:
        requests = self._requests
        try:
            url, loop = request.url, asyncio.get_running_loop()
            protocol = connection.protocol
            end, idle = _ends.get(), getattr(protocol, "_read_timeout", None)
            ends = [one for one in (None if end is None else end - loop.time(), idle) if one]
            host, verb, target = f"{url.host}:{url.port}", str(request.method), url.path
            owner = connection._connector  # noqa: SLF001 - what has the connections
        except Exception:  # noqa: BLE001 - fail open
            requests.session.live.report_failure("a request is read")
            return None
        now, timeout = current_party(requests.session.parties), min(ends, default=None)
        return requests.begin(
            verb, target, host, owner=owner, timeout=timeout, now=now, closes=True, waiting=_is_at_hand(request)
        )


def _is_at_hand(request: Any) -> bool:
    """Whether the request's body needs no code of the application to be made."""
    body = getattr(request, "_body", None) if hasattr(request, "_body") else request.body
    return not body or isinstance(body, bytes) or type(body).__name__ in _AT_HAND


def _total(session: Any, kwargs: Any) -> float | None:
    """The time that a request may take as a whole; None: as long as it likes."""
    given = kwargs.get("timeout", session)
    if given is None or isinstance(given, int | float):
        return given or None
    known = given if hasattr(given, "total") else getattr(session, "_timeout", None)
    total = getattr(known, "total", None)
    return total if isinstance(total, int | float) and total > 0 else None


def _put(request: Any, connection: Any, call: HttpCall) -> None:
    try:
        transport = connection.transport
        address, peer = (None if transport is None else transport.get_extra_info(end) for end in ("sockname", "peername"))
        for name in (STAMP, ADDRESS):
            request.headers.popall(name, None)
        for name, value in call.headers(address, peer):
            request.headers.add(name, value)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("a request is stamped")


def _take(request: Any) -> None:
    """The application sees its request without our headers, once they are written."""
    for name in (STAMP, ADDRESS):
        request.headers.popall(name, None)


def _hide_stamp(response: Any) -> str | None:
    headers = response._headers  # noqa: SLF001 - what the application is given
    stamp: str | None = headers.get(STAMP)
    if stamp is not None:
        plain = headers.copy()
        plain.popall(STAMP, None)
        response._cache.pop("headers", None)  # noqa: SLF001 - as above; it keeps what was asked for
        response._headers = type(headers)(plain)  # noqa: SLF001 - as above
        raw = response._raw_headers  # noqa: SLF001 - as above
        response._raw_headers = tuple(pair for pair in raw if pair[0].lower() != STAMP.encode())  # noqa: SLF001 - as above
    return stamp
