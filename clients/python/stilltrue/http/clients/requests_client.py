"""``requests``: each request that an ``HTTPAdapter`` sends is a call of the thread that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from stilltrue.http.clients.outgoing import HttpCall, Requests, total_of, writing
from stilltrue.http.headers import OURS_BYTES, STAMP

_PORTS = {"http": 80, "https": 443}


class RecordedRequests:
    """The replaced functions of ``requests`` and of ``urllib3``, on which it stands."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests
        self._open: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """By the response, calls whose body has not been read."""

    def send(self, original: Callable[..., Any], adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """``requests.adapters.HTTPAdapter.send``."""
        call = self._begin(adapter, request, args, kwargs)
        if call is None:
            return original(adapter, request, *args, **kwargs)
        before = writing.set(call)
        try:
            response = original(adapter, request, *args, **kwargs)
        except BaseException:
            call.end()
            raise
        finally:
            writing.reset(before)
        self._headed(call, response)
        return response

    def _begin(self, adapter: Any, request: Any, args: Any, kwargs: Any) -> HttpCall | None:
        requests = self._requests
        try:
            timeout = args[1] if len(args) > 1 else kwargs.get("timeout")
            url = urlsplit(request.url)
            host = f"{url.hostname}:{url.port or _PORTS.get(url.scheme, 0)}"
            verb, target, seconds = str(request.method), url.path, _seconds(timeout)
            copies_max = _copies(getattr(adapter, "max_retries", None))
            waiting = request.body is None or isinstance(request.body, bytes | str)
        except Exception:  # noqa: BLE001 - fail open
            requests.session.live.report_failure("a request is read")
            return None
        now = requests.session.parties.now
        return requests.begin(
            verb, target, host, owner=adapter, timeout=seconds, now=now, copies_max=copies_max, waiting=waiting
        )

    def _headed(self, call: HttpCall, response: Any) -> None:
        """Take the stamp out of the reply. A reply that is not the library's own, of a cache say, ends the call."""
        try:
            stamp = response.headers.pop(STAMP, None)
            getattr(response.raw, "headers", {}).pop(STAMP, None)
            call.headed(int(response.status_code), stamp)
            self._open[response] = call
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("a reply is read")
            call.end()

    def iter_content(self, original: Callable[..., Any], response: Any, *args: Any, **kwargs: Any) -> Any:
        """``requests.Response.iter_content``: whatever reads the body, except from ``raw``."""
        parts = original(response, *args, **kwargs)
        call = self._open.get(response)
        return parts if call is None or call.settled else _read(parts, call)

    def close(self, original: Callable[..., Any], response: Any) -> Any:
        """``requests.Response.close``."""
        call = self._open.pop(response, None)
        if call is not None:
            call.end()
        return original(response)

    def endheaders(self, original: Callable[..., Any], connection: Any, *args: Any, **kwargs: Any) -> Any:
        """``urllib3.connection.HTTPConnection.endheaders``: the last moment to add headers, on a known connection."""
        call = writing.get()
        if call is not None and connection.sock is None and connection.auto_open:
            connection.connect()  # as the original does next, before it writes anything
        if call is not None:
            try:
                _add(connection, call)
            except Exception:  # noqa: BLE001 - fail open
                call.live.report_failure("a request is stamped")
        return original(connection, *args, **kwargs)


def _add(connection: Any, call: HttpCall) -> None:
    lines = connection._buffer  # noqa: SLF001 - the lines of the head
    lines[:] = [line for line in lines if not line[:20].lower().startswith(OURS_BYTES)]
    for name, value in call.headers(connection.sock.getsockname(), connection.sock.getpeername()):
        connection.putheader(name, value)


def _read(parts: Any, call: HttpCall) -> Iterator[Any]:
    """The same parts; when there are no more, the call is over."""
    try:
        yield from parts
    finally:
        call.end()


def _seconds(timeout: Any) -> float | None:
    """The time until a request that gets no answer fails. A tuple is (connect, read)."""
    if isinstance(timeout, tuple):
        return total_of(*timeout)
    if timeout is None or isinstance(timeout, int | float):
        return timeout
    return total_of(getattr(timeout, "connect_timeout", None), getattr(timeout, "read_timeout", None))


def _copies(retries: Any) -> int:
    """How often a request may be written, at most, by ``urllib3.Retry``."""
    total = getattr(retries, "total", None)
    counts = [one for one in (total,) if isinstance(one, int) and not isinstance(one, bool)]
    return 1 + max(0, *counts) if counts else 1
