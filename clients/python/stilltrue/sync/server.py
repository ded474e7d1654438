"""A ``grpc.ServerInterceptor`` for threads that records when calls arrive, start and end, and stamps the replies.

gRPC runs the interceptor on its own thread when a request arrives, and the behaviour later on a worker of the pool. Each call
gets its own handler: if that is dropped unserved (cancelled while queued, refused), the call is withdrawn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from sys import exc_info
from typing import Any

import grpc

from stilltrue.model import WaitNumber
from stilltrue.protocol.books.ledger import NO_REPLY, ServerCall
from stilltrue.runtime.calls.handler_classes import HandlerClasses
from stilltrue.runtime.calls.incoming_call import KINDS, IncomingCall, has_failed, receive_request
from stilltrue.runtime.calls.pool import arriving, record_pool_of_server
from stilltrue.runtime.calls.server_options import call_seconds_max, options_of_thread, server_of_thread
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.calls.unanswered import UnansweredOnThread
from stilltrue.runtime.compat import MethodTables, method_tables, stop_check_of
from stilltrue.runtime.own_packages import add_handler
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.endpoint import Endpoint
from stilltrue.sync.context import PLAIN, RecordedContext, is_unanswered, record_context


class _LookedUp(threading.local):
    """What is known of the server whose thread this is: the application may give several servers the same interceptor."""

    tables: MethodTables | None = None
    """Where the interceptor looks up a handler in gRPC's place; None: not known yet."""


class RecordedServer(grpc.ServerInterceptor):
    """Records the calls of one server. Put it first: the work of later interceptors then counts as part of the service."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session
        self._seconds_max: float | None = None
        self.endpoint = Endpoint()
        self._knows_options = False
        self.is_stopping: Callable[[], bool] = bool
        """Whether the server is being stopped; False until its first call."""
        self._classes: HandlerClasses[type[_Handler]] = HandlerClasses()
        self._known = self._classes.known
        self._looked_up = _LookedUp()

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """As ``grpc.ServerInterceptor.intercept_service``."""
        method = handler_call_details.method
        session = self._session
        if session.left_out.get(method, True) and session.leaves_out(method):
            arriving.served = None
            return continuation(handler_call_details)
        endpoint = self.endpoint
        if not self._knows_options or (endpoint.peer is None and endpoint.server is None and endpoint.wants_peer):
            self._learn_options()
        served = receive_request(session, handler_call_details.invocation_metadata, method, False, self._seconds_max)
        if served is None:
            arriving.served = None
            return continuation(handler_call_details)
        handler = inner = None
        try:
            tables = self._looked_up.tables
            for table in self._learn_server() if tables is None else tables:
                if (inner := table.get(method)) is not None:
                    break
            else:
                inner = self._ask(continuation, handler_call_details, served)
            if inner is None:
                return None
            known = self._known.get(id(inner))
            handler = (self._class_of(inner) if known is None or known[0] is not inner else known[1])(served)
        finally:
            if handler is None:
                arriving.served = None
                session.live.withdrawn(served)
        arriving.served = served
        return handler

    def _ask(self, continuation: Callable[[Any], Any], handler_call_details: Any, served: ServerCall) -> Any:
        """Ask later interceptors and gRPC for the handler. The work of later interceptors is part of the service."""
        here = self._session.parties.here
        here.serving = served
        try:
            return continuation(handler_call_details)
        finally:
            here.serving = None

    def _learn_server(self) -> MethodTables:
        """Learn what serves the calls of the server whose thread this is: its methods, and its pool."""
        tables = MethodTables()
        live = self._session.live
        try:
            server = server_of_thread()
            tables = method_tables(server, self)
            record_pool_of_server(getattr(server, "thread_pool", None), live)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("reading a server's methods and pool")
        self._looked_up.tables = tables
        return tables

    def _learn_options(self) -> None:
        self._knows_options = True
        try:
            options = options_of_thread()
            self._seconds_max = call_seconds_max(options)
            self._classes.clear()
            self.is_stopping = stop_check_of(server_of_thread())
            self.endpoint.set_options(options)
            self.endpoint.learn_from_thread()
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("reading a server's options")

    def _class_of(self, inner: Any) -> type[_Handler]:
        return self._classes.of(inner, KINDS[bool(inner.request_streaming), bool(inner.response_streaming)], self._make)

    def _make(self, inner: Any, kind: str) -> type[_Handler]:
        """Make the handler class of one method, so that what all its calls share is looked up once."""
        behaviour = getattr(inner, kind)
        add_handler(behaviour)
        parts = {
            "behaviour": behaviour,
            "request_deserializer": inner.request_deserializer,
            "response_serializer": inner.response_serializer,
        }
        return type(
            f"Recorded_{kind}",
            (_HANDLERS[kind],),
            {
                "session": self._session,
                "live": self._session.live,
                "seconds_max": self._seconds_max,
                "experimental_thread_pool": getattr(behaviour, "experimental_thread_pool", None),
                "experimental_non_blocking": getattr(behaviour, "experimental_non_blocking", None),
                **{name: staticmethod(part) if part is not None else None for name, part in parts.items()},
                **({} if _has_experimental(behaviour) else {kind: _HANDLERS[kind].__call__}),
            },
        )


def _has_experimental(behaviour: Any) -> bool:
    """Whether a behaviour has one of gRPC's experimental attributes; gRPC then looks for them on the object that it calls."""
    return hasattr(behaviour, "experimental_thread_pool") or hasattr(behaviour, "experimental_non_blocking")


class _Handler(IncomingCall, grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """One call, its handler and its behaviour in a single object. Each method gets its own class."""

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

    def _replace(self, **changes: Any) -> Any:
        """As of the named tuples that gRPC uses for handlers; other interceptors call it."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields.update(changes)
        kind = KINDS[bool(fields["request_streaming"]), bool(fields["response_streaming"])]
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(fields[kind], fields["request_deserializer"], fields["response_serializer"])

    def begin(self, context: Any, interruptible: bool | None = None) -> None:
        """As :meth:`IncomingCall.begin`, on a worker. The context is polled for whether the caller is gone."""
        if type(context) is not PLAIN:
            self._begin_wrapped(context, interruptible)
            return
        try:
            context.__class__ = RecordedContext
            context.recorded_call = self
            served = self.served
            self.live.started(served, None if served.deadline_known else self.deadline_in(context), interruptible, context)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("starting to serve a call")

    def _begin_wrapped(self, context: Any, interruptible: bool | None) -> None:
        """As :meth:`begin`, for a context that an interceptor has wrapped; it is given a callback instead."""
        super().begin(context, interruptible)
        try:
            if not context.add_callback(self.hang_up):
                self.hang_up()
            record_context(context, self)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("starting to serve a call")

    def finish(self, context: Any) -> None:
        """The behaviour has returned or raised: stamp the reply, next to the application's own trailing metadata."""
        try:
            if type(context) is RecordedContext:
                state = context._state  # noqa: SLF001 - the context's own methods take its lock, three times
                trailing, code = state.trailing_metadata, state.code
                stamped = self.end(trailing, (code is not None or exc_info()[1] is not None) and has_failed(code))
                if stamped is not trailing:
                    state.trailing_metadata = stamped
            else:
                trailing = context.trailing_metadata()
                stamped = self.end(trailing, has_failed(context.code()))
                if stamped is not trailing:
                    context.set_trailing_metadata(stamped)
            error = exc_info()[1]
            if error is not None and not isinstance(error, Exception) and is_unanswered(context):
                self.session.parties.unanswered.add(self.live, UnansweredOnThread(self.served, context))
        except Exception:  # noqa: BLE001 - fail open
            self.withdraw()
            self.live.report_failure("replying to a call")


class _UnaryUnary(_Handler):
    def __call__(self, request: Any, context: Any) -> Any:
        served, live = self.served, self.live
        if served.deadline_known and type(context) is PLAIN:  # :meth:`begin` inlined: a call to cold code is slow
            try:
                context.__class__ = RecordedContext
                context.recorded_call = self
                live.started(served, None, None, context)
            except Exception:  # noqa: BLE001 - fail open
                live.report_failure("starting to serve a call")
        else:
            self.begin(context)
        here = self.session.parties.here
        before = here.serving
        here.serving = served
        try:
            reply = self.behaviour(request, context)
        except BaseException:
            here.serving = before
            self.finish(context)
            raise
        here.serving = before
        if self.callbacks is None and not self.over and type(context) is RecordedContext:  # :meth:`finish` inlined
            state = context._state  # noqa: SLF001
            if state.code is None and not state.trailing_metadata and served.reply is NO_REPLY:
                self.over = True
                if roots := self.session.parties.roots:
                    roots.pop(served.party, None)
                try:
                    pair = live.replied(served)
                    if pair is not None and served.caller is not None:
                        state.trailing_metadata = (pair,)
                except Exception:  # noqa: BLE001 - fail open
                    self.withdraw()
                    live.report_failure("replying to a call")
                return reply
        self.returned(reply)
        self.finish(context)
        return reply

    @property
    def unary_unary(self) -> Any:  # type: ignore[override]
        return self


class _StreamUnary(_UnaryUnary):
    request_streaming = True
    unary_unary = None

    def __call__(self, request: Any, context: Any) -> Any:
        return super().__call__(IncomingRequests(request, self), context)

    @property
    def stream_unary(self) -> Any:  # type: ignore[override]
        return self


class _UnaryStream(_Handler):
    response_streaming = True

    def __call__(self, request: Any, context: Any, *send: Any) -> Any:
        self.begin(context)
        here = self.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = self.served
        try:
            replies = self.behaviour(request, context, *send)
        except BaseException:
            self.finish(context)
            raise
        finally:
            here.serving = before
        if send:  # non-blocking: the application sends from its own threads, and the context reports the end
            context.add_callback(self.withdraw)
            return replies
        return _Replies(iter(replies), self, context)

    @property
    def unary_stream(self) -> Any:  # type: ignore[override]
        return self


class _StreamStream(_UnaryStream):
    request_streaming = True
    unary_stream = None

    def __call__(self, request: Any, context: Any, *send: Any) -> Any:
        return super().__call__(IncomingRequests(request, self), context, *send)

    @property
    def stream_stream(self) -> Any:  # type: ignore[override]
        return self


_HANDLERS: dict[str, type[_Handler]] = {
    "unary_unary": _UnaryUnary,
    "unary_stream": _UnaryStream,
    "stream_unary": _StreamUnary,
    "stream_stream": _StreamStream,
}
_FIELDS = ("request_streaming", "response_streaming", "request_deserializer", "response_serializer", *_HANDLERS)


class _Replies:
    """The replies of a streaming behaviour. Producing each of them is work of the party that serves the call."""

    __slots__ = ("_context", "_ended", "_handler", "_inner")

    def __init__(self, inner: Iterator[Any], handler: _Handler, context: Any) -> None:
        self._inner: Iterator[Any] | None = inner
        self._handler = handler
        self._context = context
        self._ended = False

    def __iter__(self) -> _Replies:
        return self

    def __next__(self) -> Any:
        if self._inner is None:
            raise StopIteration
        handler = self._handler
        here = handler.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = handler.served
        try:
            item = next(self._inner)
        except BaseException:
            self._ended = True
            handler.finish(self._context)
            raise
        finally:
            here.serving = before
        handler.item_sent()
        return item

    def __del__(self) -> None:
        if not self._ended:  # gRPC dropped it: the call was cancelled
            with self._handler.acting():
                self._inner = None  # a generator's cleanup is part of the service
            self._handler.withdraw()


class IncomingRequests(StandIn):
    """The requests of a streaming call; the party that asks for the next one waits for the caller."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Iterator[Any], call: IncomingCall) -> None:
        """``inner`` is gRPC's iterator."""
        self._inner = inner
        self._call = call

    def __iter__(self) -> IncomingRequests:
        return self

    def __next__(self) -> Any:
        call = self._call
        wait: WaitNumber | None = call.begin_wait()
        try:
            item = next(self._inner)
        except BaseException:
            call.end_wait(wait)
            raise
        call.item_received(wait)
        return item

    def next(self) -> Any:
        """The next request, as ``__next__``."""
        return self.__next__()
