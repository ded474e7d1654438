"""Records ``httpx.AsyncClient``: each request that an ``AsyncHTTPTransport`` handles is a call of the task that makes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from stilltrue.http.clients.httpx_messages import add_headers, begin, receive_head
from stilltrue.http.clients.outgoing_request import HttpCall, Requests, current_party, writing
from stilltrue.runtime.cached_attribute import CachedAttribute


class RecordedAsyncHttpx:
    """The replacements for methods of ``httpx`` and of ``httpcore`` below it."""

    def __init__(self, requests: Requests) -> None:
        """``requests`` begins calls."""
        self._requests = requests

    @CachedAttribute
    def _stream(self) -> Callable[[Any, HttpCall], Any]:
        """The class of recorded bodies; ``httpx`` requires a subclass of its own."""
        import httpx  # noqa: PLC0415 - already imported by the application

        class RecordedStream(httpx.AsyncByteStream):
            """The body of a reply; the call ends when it is closed."""

            __module__ = httpx.AsyncByteStream.__module__  # walks skip the agent's own objects; this one has a connection

            def __init__(self, inner: Any, call: HttpCall) -> None:
                self._inner = inner
                self._call = call

            async def __aiter__(self) -> AsyncIterator[bytes]:
                async for part in self._inner:
                    yield part

            async def aclose(self) -> None:
                try:
                    await self._inner.aclose()
                finally:
                    self._call.end()

        return RecordedStream

    async def handle_request(self, original: Callable[..., Any], transport: Any, request: Any) -> Any:
        """For ``httpx.AsyncHTTPTransport.handle_async_request``."""
        call = begin(self._requests, transport, request, current_party(self._requests.session.parties))
        if call is None:
            return await original(transport, request)
        before = writing.set(call)
        try:
            response = await original(transport, request)
        except BaseException:
            call.end()
            raise
        finally:
            writing.reset(before)
        receive_head(call, response, self._stream)
        return response

    async def send_headers(self, original: Callable[..., Any], connection: Any, *args: Any, **kwargs: Any) -> Any:
        """For ``_send_request_headers`` of ``httpcore``'s connections; the connection is known here."""
        add_headers(connection, args, kwargs)
        return await original(connection, *args, **kwargs)
