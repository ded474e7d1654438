"""Call objects of calls made on an event loop, with their full API, settled however they end."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from typing import Any
from weakref import ref

import grpc
import grpc.aio

from stilltrue.protocol.ledger import ClientCall
from stilltrue.runtime.recorder import LockedRecorder, stamp_in
from stilltrue.runtime.session import Session
from stilltrue.sync.call import leaves_doubt


class RecordedRequests:
    """The items of a request stream, counted as gRPC takes them; an asynchronous iterator whatever the inner one is."""

    __slots__ = ("_inner", "_live", "_made", "_next")

    def __init__(self, inner: Any, live: LockedRecorder, made: ClientCall) -> None:
        """``inner`` is the application's iterable, asynchronous or not."""
        self._live = live
        self._made = made
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[Any]:
        if isinstance(self._inner, AsyncIterable):
            async for item in self._inner:
                self._count()
                yield item
        else:
            for item in self._inner:
                self._count()
                yield item

    def _count(self) -> None:
        try:
            self._live.item_sent(self._made)
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("an item is sent")


def _now(awaitable: Any) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    awaitable.close()
    raise RuntimeError("the call is not over")


def settle_ended(live: LockedRecorder, made: ClientCall, inner: Any) -> None:
    """Settle a call by its ended call object; one that is gone (None) was dropped, and is in doubt. May run in a finalizer."""
    try:
        if inner is None:
            live.settled(made, None, True)
            return
        status = getattr(getattr(inner, "_cython_call", None), "_status", None)
        stamp = stamp_in(_now(inner.trailing_metadata()) if status is None else status.trailing_metadata())
        live.settled(made, stamp, stamp is None and leaves_doubt(_now(inner.code())))
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("a call ends")


class _Settling:
    """Settles a call when gRPC calls back."""

    __slots__ = ("_call", "_live", "_made")

    def __init__(self, live: LockedRecorder, made: ClientCall, call: Callable[[], Any]) -> None:
        self._live = live
        self._made = made
        self._call = call

    def __call__(self, *_: Any) -> None:
        settle_ended(self._live, self._made, self._call())


class _Call:
    """What the four kinds of call share. gRPC calls back at the end, before anybody who waits for it goes on."""

    def __init__(self, inner: Any, session: Session, made: ClientCall) -> None:
        """``inner`` is gRPC's own call object."""
        self._inner = inner
        self._session = session
        self._made = made
        core = getattr(inner, "_cython_call", None)
        # the call's own method would bind the callback to the call, and so keep a dropped one alive
        if core is None:
            inner.add_done_callback(_Settling(session.live, made, lambda: inner))
        else:
            core.add_done_callback(_Settling(session.live, made, ref(inner)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)

    def cancelled(self) -> bool:
        """As ``grpc.aio.Call.cancelled``."""
        return bool(self._inner.cancelled())

    def done(self) -> bool:
        """As ``grpc.aio.Call.done``."""
        return bool(self._inner.done())

    def time_remaining(self) -> float | None:
        """As ``grpc.aio.Call.time_remaining``."""
        remaining: float | None = self._inner.time_remaining()
        return remaining

    def cancel(self) -> bool:
        """As ``grpc.aio.Call.cancel``."""
        return bool(self._inner.cancel())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """As ``grpc.aio.Call.add_done_callback``; ``callback`` gets this very object."""
        self._inner.add_done_callback(lambda _: callback(self))

    async def initial_metadata(self) -> Any:
        """As ``grpc.aio.Call.initial_metadata``."""
        return await self._inner.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """As ``grpc.aio.Call.trailing_metadata``."""
        return await self._inner.trailing_metadata()

    async def code(self) -> Any:
        """As ``grpc.aio.Call.code``."""
        return await self._inner.code()

    async def details(self) -> Any:
        """As ``grpc.aio.Call.details``."""
        return await self._inner.details()

    async def wait_for_connection(self) -> None:
        """As ``grpc.aio.Call.wait_for_connection``."""
        await self._inner.wait_for_connection()


class _OneReply(_Call):
    def __await__(self) -> Generator[Any, None, Any]:
        session, made = self._session, self._made
        if self._inner.done():
            return (yield from self._inner.__await__())
        wait = session.begin_await(made)
        try:
            return (yield from self._inner.__await__())
        finally:
            session.end_await(made, wait)


class _ManyReplies(_Call):
    _items: _Items | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._items is None:
            self._items = _Items(self._inner.__aiter__(), self._session, self._made)
        return self._items

    async def read(self) -> Any:
        """As ``grpc.aio.UnaryStreamCall.read``."""
        if self._inner.done():
            return await self._inner.read()
        wait = self._session.begin_wait(self._made, item=True)
        try:
            item = await self._inner.read()
            if item is not grpc.aio.EOF:
                _count_received(self._session.live, self._made)
            return item
        finally:
            self._session.end_wait(wait)


class _Items:
    """The items of a reply stream; whoever takes the next one waits for it."""

    def __init__(self, inner: Any, session: Session, made: ClientCall) -> None:
        self._inner = inner
        self._session = session
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        wait = self._session.begin_wait(self._made, item=True)
        try:
            item = await self._inner.__anext__()
            _count_received(self._session.live, self._made)
            return item
        finally:
            self._session.end_wait(wait)


class _Writer(_Call):
    async def write(self, request: Any) -> None:
        """As ``grpc.aio.StreamUnaryCall.write``."""
        await self._inner.write(request)
        try:
            self._session.live.item_sent(self._made)
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("an item is sent")

    async def done_writing(self) -> None:
        """As ``grpc.aio.StreamUnaryCall.done_writing``."""
        await self._inner.done_writing()


def _count_received(live: LockedRecorder, made: ClientCall) -> None:
    try:
        live.item_received(made)
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("an item comes")


class RecordedUnaryUnaryCall(_OneReply, grpc.aio.UnaryUnaryCall):  # type: ignore[type-arg]  # generic in the stubs alone
    """As ``grpc.aio.UnaryUnaryCall``."""


class RecordedUnaryStreamCall(_ManyReplies, grpc.aio.UnaryStreamCall):  # type: ignore[type-arg]  # generic in the stubs alone
    """As ``grpc.aio.UnaryStreamCall``."""


class RecordedStreamUnaryCall(_Writer, _OneReply, grpc.aio.StreamUnaryCall):  # type: ignore[type-arg]  # as above
    """As ``grpc.aio.StreamUnaryCall``."""


class RecordedStreamStreamCall(_Writer, _ManyReplies, grpc.aio.StreamStreamCall):  # type: ignore[type-arg]  # as above
    """As ``grpc.aio.StreamStreamCall``."""
