"""A ``grpc.aio.ServerInterceptor`` that records when calls arrive, start and end, and stamps the replies.

gRPC runs the interceptor and the behaviour in one task, which is the party. The wrapper of a behaviour must be of the
behaviour's kind: a coroutine function, an asynchronous generator function, or neither (then it runs in the migration pool).
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import _get_running_loop  # the documented way that does not raise
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from sys import exc_info
from typing import Any

import grpc
import grpc.aio

from stilltrue.aio.context import RecordedContext, RecordedSyncContext
from stilltrue.protocol.books.ledger import NO_REPLY, ServerCall
from stilltrue.runtime.calls.handler_classes import HandlerClasses
from stilltrue.runtime.calls.incoming_call import KINDS, IncomingCall, enter_task, has_failed, receive_request
from stilltrue.runtime.calls.pool import PoolTask, arriving, record_pool_of_server
from stilltrue.runtime.calls.server_options import call_seconds_max, options_of_task
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.compat import aio_executor_of, aio_server_of, stop_check_of
from stilltrue.runtime.own_packages import add_handler
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.endpoint import Endpoint
from stilltrue.sync.server import IncomingRequests as IncomingSyncRequests


class RecordedAioServer(grpc.aio.ServerInterceptor):
    """Records the calls of one server. Put it first: the work of later interceptors then counts as part of the service."""

    def __init__(self, session: Session, misplaced: Callable[[RecordedAioServer], None] = lambda _: None) -> None:
        """``session`` is the agent. ``misplaced`` is called if a server that is not of grpc.aio has this interceptor."""
        self._session = session
        self._misplaced: Callable[[RecordedAioServer], None] | None = misplaced
        self._seconds_max: float | None = None
        self.endpoint = Endpoint()
        self._knows_options = False
        self.is_stopping: Callable[[], bool] = bool
        """Whether the server is being stopped; False until its first call."""
        self._classes: HandlerClasses[type[_Handler | _PoolHandler]] = HandlerClasses()
        self._known = self._classes.known

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """As ``grpc.aio.ServerInterceptor.intercept_service``.

        A ``grpc.server`` accepts this interceptor, too, and a coroutine would end the thread that serves its calls. It gets the
        handler itself, and its calls are not recorded.
        """
        if _get_running_loop() is None:
            misplaced, self._misplaced = self._misplaced, None
            if misplaced is not None:
                misplaced(self)
            return continuation(handler_call_details)
        return self._intercept(continuation, handler_call_details)

    async def _intercept(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        method = handler_call_details.method
        session = self._session
        if session.left_out.get(method, True) and session.leaves_out(method):
            return await continuation(handler_call_details)
        if not self._knows_options:
            self._learn_options()
        served = receive_request(session, handler_call_details.invocation_metadata, method, True, self._seconds_max)
        if served is None:
            return await continuation(handler_call_details)
        root = enter_task(session, served)  # the work of later interceptors is part of the service
        handler = None
        try:
            inner = await continuation(handler_call_details)
            if inner is not None:
                known = self._known.get(id(inner))
                handler = (self._class_of(inner) if known is None or known[0] is not inner else known[1])(served, root)
        finally:
            if handler is None:
                session.parties.roots.pop(served.party, None)
                session.live.withdrawn(served)
        return handler

    def _learn_options(self) -> None:
        self._knows_options = True
        try:
            options = options_of_task()
            self._seconds_max = call_seconds_max(options)
            self.endpoint.set_options(options)
            task = asyncio.current_task()
            self.is_stopping = stop_check_of(None if task is None else aio_server_of(task))
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("reading a server's options")

    def _class_of(self, inner: Any) -> type[_Handler | _PoolHandler]:
        return self._classes.of(inner, KINDS[bool(inner.request_streaming), bool(inner.response_streaming)], self._make)

    def _make(self, inner: Any, kind: str) -> type[_Handler | _PoolHandler]:
        """Make the handler class of one method, so that what all its calls share is looked up once."""
        parts = {"request_deserializer": inner.request_deserializer, "response_serializer": inner.response_serializer}
        add_handler(getattr(inner, kind))
        recorded = _recorded(getattr(inner, kind), bool(inner.response_streaming))
        in_pool = recorded in (_InPool, _sync_generator)
        if in_pool:
            self._record_pool()
        attributes: dict[str, Any] = {
            "session": self._session,
            "live": self._session.live,
            "seconds_max": self._seconds_max,
            "server": self.endpoint,
            "kind": kind,
            "recorded": staticmethod(recorded),
            "behaviour": staticmethod(getattr(inner, kind)),
            "request_streaming": bool(inner.request_streaming),
            "response_streaming": bool(inner.response_streaming),
            **{name: staticmethod(part) if part is not None else None for name, part in parts.items()},
            **{other: None for other in KINDS.values() if other != kind},
            **({} if in_pool else {kind: recorded}),
        }
        return type(f"Recorded_{kind}", (_PoolHandler if in_pool else _Handler,), attributes)

    def _record_pool(self) -> None:
        """Record the pool in which the server that the current task serves runs handlers that are not coroutines."""
        live = self._session.live
        try:
            task = asyncio.current_task()
            server = None if task is None else aio_server_of(task)
            pool = None if server is None else aio_executor_of(server, asyncio.get_running_loop())
            record_pool_of_server(pool, live)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("reading a server's pool")


class _Handler(IncomingCall, grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """One call and its handler. Each method gets its own class, with one of the functions below as its method."""

    behaviour: Callable[..., Any]
    server: Endpoint

    def __init__(self, served: ServerCall, root: Root | None) -> None:
        self.served = served
        self.root = root
        server = self.server
        if server.peer is None and server.server is None and server.wants_peer:
            self.endpoint = server


class _PoolHandler(grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """The handler of a call that gRPC hands to a pool. Separate from the call, which the function run there references."""

    session: Session
    seconds_max: float | None
    server: Endpoint
    kind: str
    recorded: Callable[[IncomingCall, Any, bool], Any]
    behaviour: Callable[..., Any]

    def __init__(self, served: ServerCall, _: Root | None) -> None:
        call = IncomingCall(self.session, served)
        call.seconds_max = self.seconds_max
        call.endpoint = self.server if self.server.wants_peer else None
        call.response_serializer = self.response_serializer
        setattr(self, self.kind, self.recorded(call, self.behaviour, self.request_streaming))


class IncomingRequests(StandIn):
    """The requests of a streaming call; the party that asks for the next one waits for the caller."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Any, call: IncomingCall) -> None:
        """``inner`` is gRPC's asynchronous iterator."""
        self._inner = inner
        self._call = call

    def __aiter__(self) -> IncomingRequests:
        return self

    async def __anext__(self) -> Any:
        call = self._call
        wait = call.begin_wait()
        try:
            item = await self._inner.__anext__()
        except BaseException:
            call.end_wait(wait)
            raise
        call.item_received(wait)
        return item


# -- on the loop -------------------------------------------------------------------------------------------------------


def _end(call: IncomingCall, context: Any) -> None:
    """The behaviour has returned or raised. Further work in the task is not part of the service."""
    root = call.root
    if root is not None:  # break the cycle between the task and its context, which would leave garbage at each call
        variable = call.session.parties.root
        if variable.get() is root:
            variable.set(None)
    if not call.over:
        try:
            trailing = context.trailing_metadata()
            code = context.code()
            stamped = call.end(trailing, (bool(code) or exc_info()[1] is not None) and has_failed(code))
            if stamped is not trailing:
                context.set_trailing_metadata(stamped)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("stamping a reply")


def _recorded(behaviour: Any, streams: bool) -> Any:
    """The recorded function for the kind of ``behaviour``: the handler's method or, for a pool, what makes one per call."""
    if inspect.iscoroutinefunction(behaviour):
        return _coroutine
    if inspect.isasyncgenfunction(behaviour):
        return _generator
    return _sync_generator if streams else _InPool


async def _coroutine(call: _Handler, request: Any, context: Any) -> Any:
    root = call.begin_in_task(context)
    try:
        if call.request_streaming:
            request = IncomingRequests(request, call)
        coroutine = call.behaviour(request, RecordedContext(context, call))
        if root is not None:
            root.coroutine = coroutine
        reply = await coroutine
        return reply if call.served.reply is NO_REPLY else call.returned(reply)
    except asyncio.CancelledError:
        await _abort_if_cured(call, context)
        call.session.parties.unanswered.perhaps(call.served)
        raise
    except Exception:
        await _abort_if_cured(call, context)
        raise
    finally:
        _end(call, context)


async def _generator(call: _Handler, request: Any, context: Any) -> AsyncIterator[Any]:
    root = call.begin_in_task(context)
    try:
        if call.request_streaming:
            request = IncomingRequests(request, call)
        async with aclosing(call.behaviour(request, RecordedContext(context, call))) as replies:
            if root is not None:
                root.coroutine = replies
            async for reply in replies:
                call.item_sent()
                yield reply
    except asyncio.CancelledError:
        await _abort_if_cured(call, context)
        call.session.parties.unanswered.perhaps(call.served)
        raise
    except Exception:
        await _abort_if_cured(call, context)
        raise
    finally:
        _end(call, context)


async def _abort_if_cured(call: IncomingCall, context: Any) -> None:
    """If a cure made the behaviour fail, give the caller the cure's status."""
    if call.aborted and not call.over:
        task = asyncio.current_task()
        if task is not None and hasattr(task, "uncancel"):
            task.uncancel()
        await RecordedContext(context, call).abort(grpc.StatusCode.ABORTED, call.aborted)


# -- in the migration pool ---------------------------------------------------------------------------------------------


class _InPool(PoolTask):
    """Serves a call with one reply in the pool."""

    __slots__ = ("_behaviour", "_streamed", "call")

    def __init__(self, call: IncomingCall, behaviour: Any, streamed: bool) -> None:
        super().__init__(call.served)
        self.call = call
        self._behaviour = behaviour
        self._streamed = streamed
        _leave_to_pool(call)

    def __call__(self, request: Any, context: Any) -> Any:
        call = self.call
        call.begin(context, interruptible=False)
        known = RecordedSyncContext(context, call)
        try:
            with call.acting():
                return call.returned(self._behaviour(IncomingSyncRequests(request, call) if self._streamed else request, known))
        except Exception:
            _abort_in_pool_if_cured(call, known)
            raise
        finally:
            _end_in_pool(call, known)


def _sync_generator(call: IncomingCall, behaviour: Any, streamed: bool) -> Any:
    _leave_to_pool(call)

    def replies_in_pool(request: Any, context: Any) -> Iterator[Any]:
        call.begin(context, interruptible=False)
        known = RecordedSyncContext(context, call)
        replies: Iterator[Any] | None = None
        try:
            with call.acting():
                replies = iter(behaviour(IncomingSyncRequests(request, call) if streamed else request, known))
            while True:
                with call.acting():
                    try:
                        reply = next(replies)
                    except StopIteration:
                        return
                call.item_sent()
                yield reply
        except Exception:
            _abort_in_pool_if_cured(call, known)
            raise
        finally:
            with call.acting():
                replies = None  # a generator's cleanup is part of the service
            _end_in_pool(call, known)

    def recorded(request: Any, context: Any) -> Iterator[Any]:
        arriving.served = call.served  # gRPC calls this on the loop, then hands the generator to the pool
        return replies_in_pool(request, context)

    return recorded


def _leave_to_pool(call: IncomingCall) -> None:
    """A worker of the pool will be the party. If the task is cancelled, the worker goes on and its reply is dropped."""
    call.leave_task()
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(lambda _: call.hang_up())


def _abort_in_pool_if_cured(call: IncomingCall, context: RecordedSyncContext) -> None:
    """As :func:`_abort_if_cured`."""
    if call.aborted and not call.over:
        context.abort(grpc.StatusCode.ABORTED, call.aborted)


def _end_in_pool(call: IncomingCall, context: RecordedSyncContext) -> None:
    """As :func:`_end`."""
    if not call.over:
        try:
            trailing = context.recorded_trailing
            stamped = call.end(trailing, has_failed(context.recorded_status))
            if stamped is not trailing:
                context.set_trailing_metadata(stamped)
        except Exception:  # noqa: BLE001 - fail open
            call.live.report_failure("stamping a reply")
