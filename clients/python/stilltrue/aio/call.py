"""Call objects for calls made on an event loop: gRPC's full API, recorded however they end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from typing import Any
from weakref import ref

import grpc
import grpc.aio

from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.calls.stamps import hide_stamp
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.own_ref import OwnRef


class OutgoingRequests:
    """The items of a request stream, counted as gRPC takes them; always an asynchronous iterable."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Any, call: OutgoingCall) -> None:
        """``inner`` is the application's iterable, asynchronous or not."""
        self._inner = inner
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Any]:
        if isinstance(self._inner, AsyncIterable):
            async for item in self._inner:
                self._call.item_sent()
                yield item
        else:
            for item in self._inner:
                self._call.item_sent()
                yield item


def record_call(inner: Any, call: OutgoingCall, kind: type[_Call]) -> Any:
    """Wrap ``inner``, which gRPC or an interceptor returned for ``call``, to record it; returned as is on failure."""
    try:
        return kind(inner, call)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("wrapping a call")
    call.dropped()
    return inner


def _run_now(awaitable: Any) -> Any:
    """Run a coroutine that must not suspend, and return its result. Raises RuntimeError if it does."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    awaitable.close()
    raise RuntimeError("the call is not over")


def settle_ended(call: OutgoingCall, inner: Any) -> None:
    """Settle a call from its ended call object; None means that the application dropped it. May run in a finalizer."""
    if inner is None:
        call.dropped()
        return
    try:
        status = getattr(getattr(inner, "_cython_call", None), "_status", None)
        trailing = _run_now(inner.trailing_metadata()) if status is None else status.trailing_metadata()
        code = grpc.StatusCode.OK if status is not None and status.code() == 0 else _run_now(inner.code())
    except Exception:  # noqa: BLE001 - an interceptor's own object without these methods
        call.dropped()
    else:
        call.ended(trailing, code)


def _called_back(call: OutgoingCall, inner: Callable[[], Any], *_: Any) -> None:
    """Settle a call in gRPC's callback."""
    ended = inner()
    try:
        status = ended._cython_call._status  # noqa: SLF001 - as in settle_ended
        if status.code() == 0 and not status.trailing_metadata() and call.callbacks is None:
            call.live.settled(call.made, None, False)
            call.settled = True
            return
    except Exception:  # noqa: BLE001 - not gRPC's own object, or gone
        pass
    settle_ended(call, ended)


class _Call(StandIn):
    """Base of the four kinds of call. gRPC calls back at the end, before the tasks that wait for it resume."""

    def __init__(self, inner: Any, call: OutgoingCall) -> None:
        """``inner`` is gRPC's own call object."""
        self._inner = inner
        self._call = call
        core = getattr(inner, "_cython_call", None)
        # not the call's own add_done_callback: it would bind the callback to the call and keep a dropped call alive
        if core is None:
            inner.add_done_callback(functools.partial(_called_back, call, lambda: inner))
        else:
            weak = call.made.handle = OwnRef(inner)
            core.add_done_callback(functools.partial(_called_back, call, weak))

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
        """As ``grpc.aio.Call.add_done_callback``; ``callback`` is passed this object."""
        recorded = self._call.as_work(callback)
        self._inner.add_done_callback(lambda _: recorded(self))

    async def initial_metadata(self) -> Any:
        """As ``grpc.aio.Call.initial_metadata``."""
        return await self._inner.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """As ``grpc.aio.Call.trailing_metadata``."""
        return hide_stamp(await self._at_end(self._inner.trailing_metadata))

    async def code(self) -> Any:
        """As ``grpc.aio.Call.code``."""
        return await self._at_end(self._inner.code)

    async def details(self) -> Any:
        """As ``grpc.aio.Call.details``."""
        return await self._at_end(self._inner.details)

    async def _at_end(self, ask: Callable[[], Any]) -> Any:
        """What ``ask`` returns once the call has ended; the current party waits for that."""
        call = self._call
        wait = None if call.settled or self._inner.done() else call.begin_wait()
        try:
            return await ask()
        finally:
            call.end_wait(wait)

    async def wait_for_connection(self) -> None:
        """As ``grpc.aio.Call.wait_for_connection``."""
        try:
            await self._inner.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            _hide_stamp_of(error)
            raise


class _SingleReply(_Call):
    def __await__(self) -> Generator[Any, None, Any]:
        call, inner = self._call, self._inner
        wait = None if call.settled or inner.done() else call.begin_await()
        try:
            return (yield from inner.__await__())
        except BaseException as error:
            _settle_unsent(call, error)
            _hide_stamp_of(error)
            raise
        finally:
            if wait is not None or call.made.wait:  # otherwise the call was over, or settled before the task resumed
                call.end_await(wait)


class _ReplyStream(_Call):
    _items: _Items | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._items is None:
            self._items = _Items(self._inner.__aiter__(), self._call, self._inner, OwnRef(self))
        return self._items

    async def read(self) -> Any:
        """As ``grpc.aio.UnaryStreamCall.read``."""
        return await _next_item(self._inner.read, self._call, waits=not self._inner.done())


class _Items(StandIn):
    """The items of a reply stream; the party that asks for the next one waits for it."""

    def __init__(self, inner: Any, call: OutgoingCall, source: Any, owner: ref[Any]) -> None:
        """``source`` is gRPC's call, which ``inner`` references anyway; ``owner`` is the application's call object."""
        self._inner = inner
        self._call = call
        self.source = source
        self.owner = owner

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        return await _next_item(self._inner.__anext__, self._call)


async def _next_item(read: Callable[[], Any], call: OutgoingCall, *, waits: bool = True) -> Any:
    """The next item of a reply stream, or ``EOF``; the current party waits for it unless the call is over."""
    wait = call.begin_wait(item=True) if waits else None
    try:
        item = await read()
    except BaseException as error:
        _settle_unsent(call, error)
        _hide_stamp_of(error)
        call.end_wait(wait)
        raise
    if item is grpc.aio.EOF or not waits:
        call.end_wait(wait)
    else:
        call.item_received(wait)
    return item


def _settle_unsent(call: OutgoingCall, error: BaseException) -> None:
    """Settle a call that gRPC could not start (invalid metadata, for example) and will never report on."""
    if not isinstance(error, grpc.RpcError | asyncio.CancelledError | StopAsyncIteration | grpc.aio.UsageError):
        call.failed(error)


def _hide_stamp_of(error: BaseException) -> None:
    """Hide the stamp in the trailing metadata of the error that gRPC raises, as the call itself does."""
    raised: Any = error if isinstance(error, grpc.aio.AioRpcError) else None
    if raised is not None:
        raised._trailing_metadata = hide_stamp(raised.trailing_metadata())  # noqa: SLF001 - there is no public setter


class _RequestStream(_Call):
    async def write(self, request: Any) -> None:
        """As ``grpc.aio.StreamUnaryCall.write``."""
        await self._inner.write(request)
        self._call.item_sent()

    async def done_writing(self) -> None:
        """As ``grpc.aio.StreamUnaryCall.done_writing``."""
        await self._inner.done_writing()


class RecordedUnaryUnaryCall(_SingleReply, grpc.aio.UnaryUnaryCall):  # type: ignore[type-arg]  # generic in the stubs alone
    """As ``grpc.aio.UnaryUnaryCall``."""


class RecordedUnaryStreamCall(_ReplyStream, grpc.aio.UnaryStreamCall):  # type: ignore[type-arg]  # generic in the stubs alone
    """As ``grpc.aio.UnaryStreamCall``."""


class RecordedStreamUnaryCall(_RequestStream, _SingleReply, grpc.aio.StreamUnaryCall):  # type: ignore[type-arg]  # as above
    """As ``grpc.aio.StreamUnaryCall``."""


class RecordedStreamStreamCall(_RequestStream, _ReplyStream, grpc.aio.StreamStreamCall):  # type: ignore[type-arg]  # as above
    """As ``grpc.aio.StreamStreamCall``."""
