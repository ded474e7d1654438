"""Call objects for calls made from threads: futures and streams with gRPC's full API, recorded however they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import finalize

import grpc

from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.calls.stamps import hide_stamp
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.own_ref import OwnRef


class OutgoingRequests:
    """The items of a request stream, counted as gRPC takes them."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Any, call: OutgoingCall) -> None:
        """``inner`` is the application's iterator."""
        self._inner = inner
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._inner)
        self._call.item_sent()
        return item


def record_call(inner: Any, call: OutgoingCall) -> Any:
    """Wrap ``inner``, which gRPC or an interceptor returned for ``call``, to record it; returned as is on failure."""
    try:
        if hasattr(inner, "add_callback") or hasattr(inner, "add_done_callback"):
            return RecordedCall(inner, call)
        if hasattr(inner, "__next__"):
            return RecordedItems(inner, call)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("wrapping a call")
    call.dropped()
    return inner


def settle_ended(call: OutgoingCall, inner: Any) -> None:
    """Settle a call from its ended call object; None means that the application dropped it."""
    if inner is None:
        call.dropped()
        return
    try:
        trailing, code = inner.trailing_metadata(), inner.code()
    except Exception:  # noqa: BLE001 - an interceptor's own object without these methods
        call.dropped()
    else:
        call.ended(trailing, code)


def take_trailing(ended: Any) -> Any:
    """Return the trailing metadata of an ended call as received, and hide the stamp in it from the application."""
    state = getattr(ended, "_state", None)  # the call's own method takes its lock and searches a queue
    if state is None:  # an interceptor below ours: gRPC has wrapped the call
        state = getattr(getattr(ended, "_call", None), "_state", None)
    try:
        trailing = ended.trailing_metadata() if state is None else state.trailing_metadata
        if state is not None:
            state.trailing_metadata = hide_stamp(trailing)
    except Exception:  # noqa: BLE001 - an interceptor's own object without trailing metadata
        return None
    return trailing


class RecordedCall(StandIn, grpc.RpcError, grpc.Call, grpc.Future):  # type: ignore[type-arg]  # generic in the stubs alone
    """A call in progress, as returned by ``future()`` and the streaming methods. Raises itself where gRPC raises the call.

    gRPC may wake a thread that waits for the result before it calls back. So each method that can reveal the end of the call to
    the application settles the call before it returns.
    """

    def __init__(self, inner: Any, call: OutgoingCall) -> None:
        """``inner`` is gRPC's own call object. Its callback must not keep it alive: dropping it cancels the call."""
        self._inner = inner
        self._call = call
        weak = call.made.handle = OwnRef(inner)
        if not hasattr(inner, "add_callback"):
            inner.add_done_callback(lambda _: settle_ended(call, weak()))
        elif not inner.add_callback(lambda: settle_ended(call, weak())):
            self._settle()

    def __repr__(self) -> str:
        return repr(self._inner)

    def __str__(self) -> str:
        return str(self._inner)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> RecordedCall:
        return self

    def __next__(self) -> Any:
        call = self._call
        wait = call.begin_wait(item=True)
        try:
            item = next(self._inner)
        except BaseException as error:
            self._settle_if_done()
            call.end_wait(wait)
            if error is self._inner:
                raise self from None
            take_trailing(error)
            raise
        call.item_received(wait)
        return item

    def next(self) -> Any:
        """The next item, as ``__next__``."""
        return self.__next__()

    # -- methods that may block ----------------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.result``."""
        return self._blocking(self._inner.result, timeout)

    def exception(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.exception``."""
        error = self._blocking(self._inner.exception, timeout)
        return self if error is self._inner else error

    def traceback(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.traceback``."""
        return self._blocking(self._inner.traceback, timeout)

    def initial_metadata(self) -> Any:
        """As ``grpc.Call.initial_metadata``; it does not wait for the call's end, so no wait is recorded."""
        return self._inner.initial_metadata()

    def trailing_metadata(self) -> Any:
        """As ``grpc.Call.trailing_metadata``."""
        return hide_stamp(self._blocking(self._inner.trailing_metadata))

    def code(self) -> Any:
        """As ``grpc.Call.code``."""
        return self._blocking(self._inner.code)

    def details(self) -> Any:
        """As ``grpc.Call.details``."""
        return self._blocking(self._inner.details)

    def _blocking(self, method: Callable[..., Any], *timeout: float | None) -> Any:
        """Run a method that may block until the call ends; record that as a wait, and settle the call before returning."""
        if self._call.settled or self._inner.done():
            self._settle()
            return self._raising_itself(method, *timeout)
        wait = self._call.begin_wait(*timeout)
        try:
            return self._raising_itself(method, *timeout)
        finally:
            self._settle_if_done()
            self._call.end_wait(wait)

    def _raising_itself(self, method: Callable[..., Any], *timeout: float | None) -> Any:
        """Run a method; if gRPC raises the inner call, raise this object instead."""
        try:
            return method(*timeout)
        except grpc.RpcError as error:
            if error is self._inner:
                raise self from None
            self._settle_if_done()
            take_trailing(error)
            raise

    # -- methods that do not block -------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        """As ``grpc.RpcContext.is_active``."""
        return bool(self._after_settling(self._inner.is_active()))

    def running(self) -> bool:
        """As ``grpc.Future.running``."""
        return bool(self._after_settling(self._inner.running()))

    def done(self) -> bool:
        """As ``grpc.Future.done``."""
        return bool(self._after_settling(self._inner.done()))

    def cancelled(self) -> bool:
        """As ``grpc.Future.cancelled``."""
        return bool(self._after_settling(self._inner.cancelled()))

    def time_remaining(self) -> Any:
        """As ``grpc.RpcContext.time_remaining``."""
        return self._inner.time_remaining()

    def cancel(self) -> bool:
        """As ``grpc.Future.cancel``."""
        cancelled = bool(self._inner.cancel())
        self._settle_if_done()
        return cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """As ``grpc.RpcContext.add_callback``; our own callback comes first, so the call is settled by then."""
        return bool(self._inner.add_callback(self._call.as_work(callback)))

    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        """As ``grpc.Future.add_done_callback``; ``fn`` is passed this object."""
        recorded = self._call.as_work(fn)
        self._inner.add_done_callback(lambda _: recorded(self))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _after_settling(self, answer: object) -> object:
        self._settle_if_done()
        return answer

    def _settle_if_done(self) -> None:
        if not self._call.settled and self._inner.done():
            self._settle()

    def _settle(self) -> None:
        if not self._call.settled:
            settle_ended(self._call, self._inner)


class RecordedItems(StandIn):
    """A stream of replies that an interceptor has replaced by its own iterator, such as a generator."""

    def __init__(self, inner: Any, call: OutgoingCall) -> None:
        """``inner`` is the iterator; the call ends when it does."""
        self._inner = inner
        self._call = call
        finalize(inner, self._dropped, call)

    @staticmethod
    def _dropped(call: OutgoingCall) -> None:
        if not call.settled:
            call.dropped()

    def __iter__(self) -> RecordedItems:
        return self

    def __next__(self) -> Any:
        call = self._call
        wait = call.begin_wait(item=True)
        try:
            item = next(self._inner)
        except StopIteration:
            call.ended(None, grpc.StatusCode.OK)
            call.end_wait(wait)
            raise
        except BaseException as error:
            call.failed(error)
            take_trailing(error)
            call.end_wait(wait)
            raise
        call.item_received(wait)
        return item
