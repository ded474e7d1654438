"""Records ``requests``: each request that an ``HTTPAdapter`` sends is a call of the thread that makes it.

Its headers are added where :mod:`stilltrue.http.clients.http_client` writes them to a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from stilltrue.http.clients.outgoing_request import HttpCall, Requests, total_of, writing
from stilltrue.http.headers import STAMP

_PORTS = {"http": 80, "https": 443}


class RecordedRequests:
    """The replacements for methods of ``requests``."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests
        self._open: WeakKeyDictionary[Any, HttpCall] = WeakKeyDictionary()
        """Calls whose reply has not been read to its end, by response."""

    def send(self, original: Callable[..., Any], adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``requests.adapters.HTTPAdapter.send``."""
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
        self._receive_head(call, response)
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
            requests.session.live.report_failure("reading a request")
            return None
        now = requests.session.parties.current
        return requests.begin(
            verb, target, host, owner=adapter, timeout=seconds, now=now, copies_max=copies_max, waiting=waiting
        )

    def _receive_head(self, call: HttpCall, response: Any) -> None:
        """Handle the head of a reply and hide the stamp. A reply from elsewhere (a cache, for example) ends the call."""
        try:
            stamp = response.headers.pop(STAMP, None)
            getattr(response.raw, "headers", {}).pop(STAMP, None)
            call.head_received(int(response.status_code), stamp)
            self._open[response] = call
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("reading a reply")
            call.end()

    def iter_content(self, original: Callable[..., Any], response: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``requests.Response.iter_content``, through which every read of the body goes except from ``raw``."""
        parts = original(response, *args, **kwargs)
        call = self._open.get(response)
        return parts if call is None or call.settled else _read(parts, call)

    def close(self, original: Callable[..., Any], response: Any) -> Any:
        """For ``requests.Response.close``."""
        call = self._open.pop(response, None)
        if call is not None:
            call.end()
        return original(response)


def _read(parts: Any, call: HttpCall) -> Iterator[Any]:
    """Yield the parts of a body; the call ends with the last one."""
    try:
        yield from parts
    finally:
        call.end()


def _seconds(timeout: Any) -> float | None:
    """The time in seconds after which a request without a reply fails. A tuple is (connect, read)."""
    if isinstance(timeout, tuple):
        return total_of(*timeout)
    if timeout is None or isinstance(timeout, int | float):
        return timeout
    return total_of(getattr(timeout, "connect_timeout", None), getattr(timeout, "read_timeout", None))


def _copies(retries: Any) -> int:
    """The maximum number of times that ``urllib3.Retry`` may write a request."""
    total = getattr(retries, "total", None)
    counts = [one for one in (total,) if isinstance(one, int) and not isinstance(one, bool)]
    return 1 + max(0, *counts) if counts else 1
