"""Calls served by threads: a ``grpc.ServerInterceptor`` that records arrival, start and end, and stamps the reply.

gRPC runs the interceptor when a request arrives, on its own thread, and the behaviour later, on a worker of the pool. The handler
that the interceptor returns is made for this one call: when gRPC drops it unserved (cancelled while queued, refused), it tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from stilltrue.joined import Joined
from stilltrue.ledger import Served
from stilltrue.live import stamp_in
from stilltrue.pools import PoolRecord, arriving
from stilltrue.report import CallerTarget

DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC tells of a deadline this far off, or farther, when there is none."""


class RecordedServer(grpc.ServerInterceptor):
    """Records the calls that one server serves. Give it first: what later interceptors do is then part of the service."""

    def __init__(self, joined: Joined, pool: PoolRecord | None = None) -> None:
        """``pool`` is the pool that behaviours run on, when it is known."""
        self._joined = joined
        self._pool = "" if pool is None else pool.name

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """As ``grpc.ServerInterceptor.intercept_service``."""
        method = handler_call_details.method
        joined = self._joined
        if joined.leaves_out(method):
            return continuation(handler_call_details)
        try:
            stamp = stamp_in(handler_call_details.invocation_metadata)
            served = joined.live.arrived(stamp, method, self._pool, False)
        except Exception:  # noqa: BLE001 - fail open
            joined.live.fault("a request arrives")
            return continuation(handler_call_details)
        try:
            handler = continuation(handler_call_details)
        except BaseException:
            joined.live.withdrawn(served)
            raise
        if handler is None:
            joined.live.withdrawn(served)
            return None
        arriving.served = served
        return _HANDLERS[bool(handler.request_streaming), bool(handler.response_streaming)](handler, joined, served)


class _Handler(grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """The handler of one call, and the behaviour in it."""

    __slots__ = ("_behaviour", "_inner", "_joined", "_served", "_started")
    request_streaming = False
    response_streaming = False
    unary_unary: Any = None
    unary_stream: Any = None
    stream_unary: Any = None
    stream_stream: Any = None

    def __init__(self, inner: Any, joined: Joined, served: Served) -> None:
        self._inner = inner
        self._joined = joined
        self._served = served
        self._started = False
        self._behaviour = self._find(inner)

    @staticmethod
    def _find(inner: Any) -> Any:
        raise NotImplementedError

    def __del__(self) -> None:
        if not self._started:
            self._joined.live.withdrawn(self._served)

    @property
    def request_deserializer(self) -> Any:  # type: ignore[override]
        return self._inner.request_deserializer

    @property
    def response_serializer(self) -> Any:  # type: ignore[override]
        return self._inner.response_serializer

    @property
    def experimental_thread_pool(self) -> Any:
        return getattr(self._behaviour, "experimental_thread_pool", None)

    @property
    def experimental_non_blocking(self) -> Any:
        return getattr(self._behaviour, "experimental_non_blocking", None)

    def _replace(self, **changes: Any) -> Any:
        """As the named tuple that gRPC's own handlers are; other interceptors use it."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields.update(changes)
        kind = _KINDS[bool(fields["request_streaming"]), bool(fields["response_streaming"])]
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(fields[kind], fields["request_deserializer"], fields["response_serializer"])

    def _begin(self, context: Any) -> None:
        """A worker took the call."""
        self._started = True
        live = self._joined.live
        try:
            remaining = context.time_remaining()
            deadline = None
            if remaining is not None and remaining < DEADLINE_SECONDS_MAX:
                deadline = live.clock() + remaining
            live.started(self._served, deadline)
        except Exception:  # noqa: BLE001 - fail open
            live.fault("a call is taken")

    def _end(self, context: Any) -> None:
        """The behaviour is over, in whatever way: the reply is stamped, beside what the application put there."""
        live = self._joined.live
        try:
            pair = live.replied(self._served)
            trailing = context.trailing_metadata()
            context.set_trailing_metadata((*trailing, pair) if trailing else (pair,))
        except Exception:  # noqa: BLE001 - fail open
            live.withdrawn(self._served)
            live.fault("a call is replied to")


class _OneReply(_Handler):
    __slots__ = ()

    def __call__(self, request: Any, context: Any) -> Any:
        self._begin(context)
        here = self._joined.parties.here
        before = getattr(here, "serving", None)
        here.serving = self._served.party
        try:
            return self._behaviour(self._argument(request), context)
        finally:
            here.serving = before
            self._end(context)

    def _argument(self, request: Any) -> Any:
        return request


class _ManyReplies(_Handler):
    __slots__ = ()

    def __call__(self, request: Any, context: Any, *send: Any) -> Any:
        self._begin(context)
        here = self._joined.parties.here
        before = getattr(here, "serving", None)
        here.serving = self._served.party
        try:
            replies = self._behaviour(self._argument(request), context, *send)
        except BaseException:
            self._end(context)
            raise
        finally:
            here.serving = before
        if send:  # non-blocking: the application sends from threads of its own, and the context tells of the end
            context.add_callback(lambda: self._joined.live.withdrawn(self._served))
            return replies
        return _Replies(iter(replies), self, context)

    def _argument(self, request: Any) -> Any:
        return request


class _UnaryUnary(_OneReply):
    __slots__ = ()

    @staticmethod
    def _find(inner: Any) -> Any:
        return inner.unary_unary

    @property
    def unary_unary(self) -> Any:  # type: ignore[override]
        return self


class _UnaryStream(_ManyReplies):
    __slots__ = ()
    response_streaming = True

    @staticmethod
    def _find(inner: Any) -> Any:
        return inner.unary_stream

    @property
    def unary_stream(self) -> Any:  # type: ignore[override]
        return self


class _StreamUnary(_OneReply):
    __slots__ = ()
    request_streaming = True

    @staticmethod
    def _find(inner: Any) -> Any:
        return inner.stream_unary

    @property
    def stream_unary(self) -> Any:  # type: ignore[override]
        return self

    def _argument(self, request: Any) -> Any:
        return _Items(request, self._joined, self._served)


class _StreamStream(_ManyReplies):
    __slots__ = ()
    request_streaming = True
    response_streaming = True

    @staticmethod
    def _find(inner: Any) -> Any:
        return inner.stream_stream

    @property
    def stream_stream(self) -> Any:  # type: ignore[override]
        return self

    def _argument(self, request: Any) -> Any:
        return _Items(request, self._joined, self._served)


_KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
_HANDLERS: dict[tuple[bool, bool], type[_Handler]] = {
    (False, False): _UnaryUnary,
    (False, True): _UnaryStream,
    (True, False): _StreamUnary,
    (True, True): _StreamStream,
}
_FIELDS = (
    "request_streaming",
    "response_streaming",
    "request_deserializer",
    "response_serializer",
    "unary_unary",
    "unary_stream",
    "stream_unary",
    "stream_stream",
)


class _Replies:
    """The replies of a streaming behaviour; each is taken as the party that serves the call."""

    __slots__ = ("_context", "_ended", "_handler", "_inner")

    def __init__(self, inner: Iterator[Any], handler: _Handler, context: Any) -> None:
        self._inner = inner
        self._handler = handler
        self._context = context
        self._ended = False

    def __iter__(self) -> _Replies:
        return self

    def __next__(self) -> Any:
        handler = self._handler
        here = handler._joined.parties.here  # noqa: SLF001 - one thing in two classes
        before = getattr(here, "serving", None)
        here.serving = handler._served.party  # noqa: SLF001
        try:
            item = next(self._inner)
        except BaseException:
            self._ended = True
            handler._end(self._context)  # noqa: SLF001
            raise
        finally:
            here.serving = before
        live = handler._joined.live  # noqa: SLF001
        try:
            live.item_sent(handler._served)  # noqa: SLF001
        except Exception:  # noqa: BLE001 - fail open
            live.fault("an item is sent")
        return item

    def __del__(self) -> None:
        if not self._ended:  # gRPC dropped it: the call was cancelled
            self._handler._joined.live.withdrawn(self._handler._served)  # noqa: SLF001


class _Items:
    """The requests of a streaming call; whoever takes the next one waits for the caller."""

    __slots__ = ("_inner", "_joined", "_served")

    def __init__(self, inner: Iterator[Any], joined: Joined, served: Served) -> None:
        self._inner = inner
        self._joined = joined
        self._served = served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        joined, served = self._joined, self._served
        wait = None
        try:
            target = CallerTarget(served=served.party)
            what = f"the next request of {served.method}"
            wait = joined.live.waits(joined.parties.now(), (target,), deadline=served.deadline, uncoloured=True, what=what)
        except Exception:  # noqa: BLE001 - fail open
            joined.live.fault("a request is awaited")
        try:
            item = next(self._inner)
        except BaseException:
            joined.end_wait(wait)
            raise
        try:
            joined.live.item_received(served, wait)
        except Exception:  # noqa: BLE001 - fail open
            joined.live.fault("a request comes")
        return item

    def next(self) -> Any:
        return self.__next__()
