"""Calls served on an event loop: a ``grpc.aio.ServerInterceptor`` that records arrival, start and end, and stamps the reply.

gRPC runs the interceptor and the behaviour in one task, which is the party. The wrapper of a behaviour must be of the kind that
gRPC takes it for: a coroutine function, an asynchronous generator function, or neither (then it runs in the migration pool).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
import grpc.aio

from stilltrue.aio.served_call import RecordedContext, RecordedRequests, RecordedSyncContext, RecordedSyncRequests
from stilltrue.model import WaitNumber
from stilltrue.protocol.ledger import ServerCall
from stilltrue.protocol.report import CallerTarget
from stilltrue.runtime.parties import Root
from stilltrue.runtime.recorder import stamp_in
from stilltrue.runtime.session import Session
from stilltrue.sync.server import CLASSES_MAX, KINDS


class RecordedAioServer(grpc.aio.ServerInterceptor):
    """Records the calls that one server serves. Give it first: what later interceptors do is then part of the service."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session
        self._methods: dict[int, tuple[Any, type[_Handler]]] = {}

    async def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """As ``grpc.aio.ServerInterceptor.intercept_service``."""
        method = handler_call_details.method
        session = self._session
        if session.leaves_out(method):
            return await continuation(handler_call_details)
        try:
            served = session.live.arrived(stamp_in(handler_call_details.invocation_metadata), method, True)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a request arrives")
            return await continuation(handler_call_details)
        try:
            inner = await continuation(handler_call_details)
        except BaseException:
            session.live.withdrawn(served)
            raise
        if inner is None:
            session.live.withdrawn(served)
            return None
        known = self._methods.get(id(inner))
        made_for_it = self._make(inner) if known is None or known[0] is not inner else known[1]
        return made_for_it(Service(session, served, made_for_it.request_streaming))

    def _make(self, inner: Any) -> type[_Handler]:
        """The class of the handlers of one method: what is the same for each call is looked up once."""
        kind = KINDS[bool(inner.request_streaming), bool(inner.response_streaming)]
        parts = {"request_deserializer": inner.request_deserializer, "response_serializer": inner.response_serializer}
        attributes: dict[str, Any] = {
            "__slots__": (kind,),
            "kind": kind,
            "behaviour": staticmethod(getattr(inner, kind)),
            "wrap": staticmethod(_wrapper(getattr(inner, kind), bool(inner.response_streaming))),
            "request_streaming": bool(inner.request_streaming),
            "response_streaming": bool(inner.response_streaming),
            **{name: staticmethod(part) if part is not None else None for name, part in parts.items()},
            **{other: None for other in KINDS.values() if other != kind},
        }
        made: type[_Handler] = type(f"Recorded_{kind}", (_Handler,), attributes)
        if len(self._methods) >= CLASSES_MAX:  # somebody makes a handler for each call
            self._methods.clear()
        self._methods[id(inner)] = (inner, made)
        return made


class _Handler(grpc.RpcMethodHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """The handler of one call. A class of its own is made for each method."""

    kind: str
    behaviour: Callable[..., Any]
    wrap: Callable[[Service, Any], Any]

    def __init__(self, service: Service) -> None:
        setattr(self, self.kind, self.wrap(service, self.behaviour))


class Service:
    """The service of one call; when it is dropped unserved, the call is withdrawn."""

    __slots__ = ("_over", "request_streaming", "served", "session")

    def __init__(self, session: Session, served: ServerCall, request_streaming: bool) -> None:
        """``served`` has arrived."""
        self.session = session
        self.served = served
        self.request_streaming = request_streaming
        self._over = False

    def __del__(self) -> None:
        if not self._over:
            self.session.parties.roots.pop(self.served.party, None)
            self.session.live.withdrawn(self.served)

    def begin(self, context: Any) -> Root | None:
        """The behaviour starts, in the task that serves the call."""
        session, served = self.session, self.served
        try:
            remaining = context.time_remaining()
            session.live.started(served, None if remaining is None else session.live.clock() + remaining)
            task = asyncio.current_task()
            if task is None:
                return None
            root = Root(task, served)
            session.parties.root.set(root)
            session.parties.roots[served.party] = root
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a call is taken")
            return None
        return root

    def begin_in_thread(self, context: Any) -> None:
        """The behaviour starts, on a worker of the migration pool."""
        live = self.session.live
        try:
            remaining = context.time_remaining()
            live.started(self.served, None if remaining is None else live.clock() + remaining)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a call is taken")

    @contextmanager
    def acting(self) -> Iterator[None]:
        """This thread acts as the party that serves the call, inside the block."""
        here = self.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = self.served
        try:
            yield
        finally:
            here.serving = before

    def requests(self, request: Any) -> Any:
        """The request, or the stream of them, as a behaviour on the loop gets it."""
        return RecordedRequests(request, self) if self.request_streaming else request

    def sync_requests(self, request: Any) -> Any:
        """The request, or the stream of them, as a behaviour in the migration pool gets it."""
        return RecordedSyncRequests(request, self) if self.request_streaming else request

    @contextmanager
    def next_request(self) -> Iterator[Callable[[], None]]:
        """Inside the block, who runs it waits for the caller's next item; it calls what it is given when the item came."""
        live, served = self.session.live, self.served
        wait: WaitNumber | None = None
        try:
            party = self.session.parties.now()
            what = f"the next request of {served.method}"
            target = CallerTarget(served=served.party)
            wait = live.waits(party, (target,), deadline=served.deadline, uncoloured=True, what=what)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a request is awaited")

        def received() -> None:
            try:
                live.item_received(served, wait)
            except Exception:  # noqa: BLE001 - fail open
                live.report_failure("a request comes")

        try:
            yield received
        finally:
            self.session.end_wait(wait)

    def sent_item(self) -> None:
        """One item of the reply stream goes out."""
        try:
            self.session.live.item_sent(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.session.live.report_failure("an item is sent")

    def reply(self, trailing: Any) -> Any:
        """The service is over: ``trailing`` with the reply's stamp; as it was when that failed or was done before."""
        if self._over:
            return trailing
        self._over = True
        self.session.parties.roots.pop(self.served.party, None)
        try:
            pair = self.session.live.replied(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.session.live.withdrawn(self.served)
            self.session.live.report_failure("a call is replied to")
            return trailing
        return (*trailing, pair) if trailing else (pair,)

    def end(self, context: Any) -> None:
        """The behaviour is over, in whatever way."""
        if not self._over:
            try:
                context.set_trailing_metadata(self.reply(context.trailing_metadata()))
            except Exception:  # noqa: BLE001 - fail open
                self.session.live.report_failure("a reply is stamped")

    def end_in_thread(self, context: RecordedSyncContext) -> None:
        """The behaviour in the migration pool is over."""
        if not self._over:
            try:
                context.set_trailing_metadata(self.reply(context.trailing))
            except Exception:  # noqa: BLE001 - fail open
                self.session.live.report_failure("a reply is stamped")


def _wrapper(behaviour: Any, streams: bool) -> Callable[[Service, Any], Any]:
    """What makes, for one call, a function of the same kind as ``behaviour``, but recorded."""
    if inspect.iscoroutinefunction(behaviour):
        return _coroutine
    if inspect.isasyncgenfunction(behaviour):
        return _generator
    return _sync_generator if streams else _sync


def _coroutine(service: Service, behaviour: Any) -> Any:
    async def recorded(request: Any, context: Any) -> Any:
        root = service.begin(context)
        try:
            coroutine = behaviour(service.requests(request), RecordedContext(context, service))
            if root is not None:
                root.coroutine = coroutine
            return await coroutine
        finally:
            service.end(context)

    return recorded


def _generator(service: Service, behaviour: Any) -> Any:
    async def recorded(request: Any, context: Any) -> AsyncIterator[Any]:
        root = service.begin(context)
        try:
            async with aclosing(behaviour(service.requests(request), RecordedContext(context, service))) as replies:
                if root is not None:
                    root.coroutine = replies
                async for reply in replies:
                    service.sent_item()
                    yield reply
        finally:
            service.end(context)

    return recorded


def _sync(service: Service, behaviour: Any) -> Any:
    service.served.interruptible = False

    def recorded(request: Any, context: Any) -> Any:
        service.begin_in_thread(context)
        known = RecordedSyncContext(context, service)
        try:
            with service.acting():
                return behaviour(service.sync_requests(request), known)
        finally:
            service.end_in_thread(known)

    return recorded


def _sync_generator(service: Service, behaviour: Any) -> Any:
    service.served.interruptible = False

    def recorded(request: Any, context: Any) -> Iterator[Any]:
        service.begin_in_thread(context)
        known = RecordedSyncContext(context, service)
        try:
            with service.acting():
                replies = iter(behaviour(service.sync_requests(request), known))
            while True:
                with service.acting():
                    try:
                        reply = next(replies)
                    except StopIteration:
                        return
                service.sent_item()
                yield reply
        finally:
            service.end_in_thread(known)

    return recorded
