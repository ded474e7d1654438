"""Records ``httpx.Client``: each request that an ``HTTPTransport`` handles is a call of the thread that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stilltrue.http.clients.httpx_messages import add_headers, begin, receive_head
from stilltrue.http.clients.outgoing_request import HttpCall, Requests, writing
from stilltrue.runtime.cached_attribute import CachedAttribute


class RecordedHttpx:
    """The replacements for methods of ``httpx`` and of ``httpcore`` below it."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests

    @CachedAttribute
    def _stream(self) -> Callable[[Any, HttpCall], Any]:
        """The class of recorded bodies; ``httpx`` requires a subclass of its own."""
        import httpx  # noqa: PLC0415 - already imported by the application

        class RecordedStream(httpx.SyncByteStream):
            """The body of a reply; the call ends when it is closed."""

            __module__ = httpx.SyncByteStream.__module__  # walks skip the agent's own objects; this one has a connection

            def __init__(self, inner: Any, call: HttpCall) -> None:
                self._inner = inner
                self._call = call

            def __iter__(self) -> Iterator[bytes]:
                yield from self._inner

            def close(self) -> None:
                try:
                    self._inner.close()
                finally:
                    self._call.end()

        return RecordedStream

    def handle_request(self, original: Callable[..., Any], transport: Any, request: Any) -> Any:
        """For ``httpx.HTTPTransport.handle_request``."""
        call = begin(self._requests, transport, request, self._requests.session.parties.current)
        if call is None:
            return original(transport, request)
        before = writing.set(call)
        try:
            response = original(transport, request)
        except BaseException:
            call.end()
            raise
        finally:
            writing.reset(before)
        receive_head(call, response, self._stream)
        return response

    def send_headers(self, original: Callable[..., Any], connection: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``_send_request_headers`` of ``httpcore``'s connections; the connection is known here."""
        add_headers(connection, args, kwargs)
        return original(connection, *args, **kwargs)
