"""Calls served by threads: a ``grpc.ServerInterceptor`` that records arrival, start and end, and stamps the reply.

gRPC runs the interceptor when a request arrives, on its own thread, and the behaviour later, on a worker of the pool. The
handler that the interceptor returns is made for this one call: dropped unserved (cancelled while queued, refused), it tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from stilltrue.protocol.ledger import ServerCall
from stilltrue.protocol.report import CallerTarget
from stilltrue.runtime.recorder import stamp_in
from stilltrue.runtime.session import Session
from stilltrue.sync.pool import arriving

CLASSES_MAX = 4_096
DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC tells of a deadline this far off, or farther, when there is none."""


class RecordedServer(grpc.ServerInterceptor):
    """Records the calls that one server serves. Give it first: what later interceptors do is then part of the service."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session
        self._classes: dict[int, tuple[Any, type[_Handler]]] = {}

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """As ``grpc.ServerInterceptor.intercept_service``."""
        method = handler_call_details.method
        session = self._session
        arriving.served = None
        if session.left_out.get(method, True) and session.leaves_out(method):
            return continuation(handler_call_details)
        try:
            served = session.live.arrived(stamp_in(handler_call_details.invocation_metadata), method, False)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a request arrives")
            return continuation(handler_call_details)
        try:
            inner = continuation(handler_call_details)
        except BaseException:
            session.live.withdrawn(served)
            raise
        if inner is None:
            session.live.withdrawn(served)
            return None
        arriving.served = served
        known = self._classes.get(id(inner))
        made_for_it = self._make(inner) if known is None or known[0] is not inner else known[1]
        return made_for_it(served)

    def _make(self, inner: Any) -> type[_Handler]:
        """The class of the handlers of one method: what is the same for each call is looked up once."""
        kind = KINDS[bool(inner.request_streaming), bool(inner.response_streaming)]
        behaviour = getattr(inner, kind)
        parts = {
            "behaviour": behaviour,
            "request_deserializer": inner.request_deserializer,
            "response_serializer": inner.response_serializer,
        }
        made: type[_Handler] = type(
            f"Recorded_{kind}",
            (_HANDLERS[kind],),
            {
                "__slots__": (),
                "session": self._session,
                "experimental_thread_pool": getattr(behaviour, "experimental_thread_pool", None),
                "experimental_non_blocking": getattr(behaviour, "experimental_non_blocking", None),
                **{name: staticmethod(part) if part is not None else None for name, part in parts.items()},
            },
        )
        if len(self._classes) >= CLASSES_MAX:  # somebody makes a handler for each call
            self._classes.clear()
        self._classes[id(inner)] = (inner, made)
        return made


class _Handler(grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """The handler of one call, and the behaviour in it. A class of its own is made for each method."""

    __slots__ = ("served",)
    session: Session
    behaviour: Callable[..., Any]
    experimental_thread_pool: Any
    experimental_non_blocking: Any
    request_streaming = False
    response_streaming = False
    unary_unary: Any = None
    unary_stream: Any = None
    stream_unary: Any = None
    stream_stream: Any = None

    def __init__(self, served: ServerCall) -> None:
        self.served = served

    def __del__(self) -> None:
        if not self.served.serving:
            self.session.live.withdrawn(self.served)

    def _replace(self, **changes: Any) -> Any:
        """As the named tuple that gRPC's own handlers are; other interceptors use it."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields.update(changes)
        kind = KINDS[bool(fields["request_streaming"]), bool(fields["response_streaming"])]
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(fields[kind], fields["request_deserializer"], fields["response_serializer"])

    def begin(self, context: Any) -> None:
        """A worker took the call."""
        try:
            remaining = context.time_remaining()
            live = self.session.live
            live.started(self.served, None if remaining > DEADLINE_SECONDS_MAX else live.clock() + remaining)
            hang_up = self.served.hang_up
            if not context.add_callback(hang_up):
                hang_up()
        except Exception:  # noqa: BLE001 - fail open
            self.session.live.report_failure("a call is taken")

    def end(self, context: Any) -> None:
        """The behaviour is over, in whatever way: the reply is stamped, beside what the application put there."""
        live = self.session.live
        try:
            pair = live.replied(self.served)
            trailing = context.trailing_metadata()
            context.set_trailing_metadata((*trailing, pair) if trailing else (pair,))
        except Exception:  # noqa: BLE001 - fail open
            live.withdrawn(self.served)
            live.report_failure("a call is replied to")


class _UnaryUnary(_Handler):
    __slots__ = ()

    def __call__(self, request: Any, context: Any) -> Any:
        self.begin(context)
        here = self.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = self.served
        try:
            return self.behaviour(request, context)
        finally:
            here.serving = before
            self.end(context)

    @property
    def unary_unary(self) -> Any:  # type: ignore[override]
        return self


class _StreamUnary(_UnaryUnary):
    __slots__ = ()
    request_streaming = True
    unary_unary = None

    def __call__(self, request: Any, context: Any) -> Any:
        return super().__call__(_Items(request, self.session, self.served), context)

    @property
    def stream_unary(self) -> Any:  # type: ignore[override]
        return self


class _UnaryStream(_Handler):
    __slots__ = ()
    response_streaming = True

    def __call__(self, request: Any, context: Any, *send: Any) -> Any:
        self.begin(context)
        here = self.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = self.served
        try:
            replies = self.behaviour(request, context, *send)
        except BaseException:
            self.end(context)
            raise
        finally:
            here.serving = before
        if send:  # non-blocking: the application sends from threads of its own, and the context tells of the end
            live, served = self.session.live, self.served
            context.add_callback(lambda: live.withdrawn(served))
            return replies
        return _Replies(iter(replies), self, context)

    @property
    def unary_stream(self) -> Any:  # type: ignore[override]
        return self


class _StreamStream(_UnaryStream):
    __slots__ = ()
    request_streaming = True
    unary_stream = None

    def __call__(self, request: Any, context: Any, *send: Any) -> Any:
        return super().__call__(_Items(request, self.session, self.served), context, *send)

    @property
    def stream_stream(self) -> Any:  # type: ignore[override]
        return self


KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
_HANDLERS: dict[str, type[_Handler]] = {
    "unary_unary": _UnaryUnary,
    "unary_stream": _UnaryStream,
    "stream_unary": _StreamUnary,
    "stream_stream": _StreamStream,
}
_FIELDS = ("request_streaming", "response_streaming", "request_deserializer", "response_serializer", *_HANDLERS)


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
        here = handler.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = handler.served
        try:
            item = next(self._inner)
        except BaseException:
            self._ended = True
            handler.end(self._context)
            raise
        finally:
            here.serving = before
        live = handler.session.live
        try:
            live.item_sent(handler.served)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("an item is sent")
        return item

    def __del__(self) -> None:
        if not self._ended:  # gRPC dropped it: the call was cancelled
            self._handler.session.live.withdrawn(self._handler.served)


class _Items:
    """The requests of a streaming call; whoever takes the next one waits for the caller."""

    __slots__ = ("_inner", "_served", "_session")

    def __init__(self, inner: Iterator[Any], session: Session, served: ServerCall) -> None:
        self._inner = inner
        self._session = session
        self._served = served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        session, served = self._session, self._served
        wait = None
        try:
            target = CallerTarget(served=served.party)
            what = f"the next request of {served.method}"
            wait = session.live.waits(session.parties.now(), (target,), deadline=served.deadline, uncoloured=True, what=what)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a request is awaited")
        try:
            item = next(self._inner)
        except BaseException:
            session.end_wait(wait)
            raise
        try:
            session.live.item_received(served, wait)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a request comes")
        return item

    def next(self) -> Any:
        return self.__next__()
