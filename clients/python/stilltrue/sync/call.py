"""Call objects of calls made from threads: futures and streams, with their full API, settled however they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import grpc

from stilltrue.protocol.ledger import ClientCall
from stilltrue.runtime.recorder import LockedRecorder, stamp_in
from stilltrue.runtime.session import Session

ANSWERS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""A failure with one of these came from the server's application; any other, unstamped, leaves the call in doubt."""


def leaves_doubt(code: Any) -> bool:
    """Whether a call that ended with ``code`` and without a stamp may have been received, or may yet be (rule 8)."""
    return code is not grpc.StatusCode.OK and code not in ANSWERS


class RecordedRequests:
    """The items of a request stream, counted as gRPC takes them."""

    __slots__ = ("_inner", "_live", "_made")

    def __init__(self, inner: Any, live: LockedRecorder, made: ClientCall) -> None:
        """``inner`` is the application's iterator."""
        self._inner = inner
        self._live = live
        self._made = made

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._inner)
        try:
            self._live.item_sent(self._made)
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("an item is sent")
        return item


def settle_ended(live: LockedRecorder, made: ClientCall, inner: Any) -> None:
    """Settle a call by its ended call object; one that is gone (None) was dropped, and is in doubt."""
    try:
        if inner is None:
            live.settled(made, None, True)
            return
        stamp = stamp_in(inner.trailing_metadata())
        live.settled(made, stamp, stamp is None and leaves_doubt(inner.code()))
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("a call ends")


class RecordedCall(grpc.Call, grpc.Future):  # type: ignore[type-arg]  # generic in the stubs alone
    """A call under way: what ``future()`` and the streaming methods return.

    gRPC calls back when a call is over, but may wake whoever waits for the result first. So each method that can tell the
    application of the end settles the call before it returns.
    """

    def __init__(self, inner: Any, session: Session, made: ClientCall) -> None:
        """``inner`` is gRPC's own call object; it alone must keep itself alive, for it cancels the call when dropped."""
        self._inner = inner
        self._session = session
        self._live = live = session.live
        self._made = made
        self._settled = False
        weak = ref(inner)
        if not inner.add_callback(lambda: settle_ended(live, made, weak())):
            self._settle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> RecordedCall:
        return self

    def __next__(self) -> Any:
        wait = self._session.begin_wait(self._made, item=True)
        try:
            item = next(self._inner)
        except BaseException:
            self._settle_if_done()
            self._session.end_wait(wait)
            raise
        try:
            self._live.item_received(self._made, wait)
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("an item comes")
        return item

    def next(self) -> Any:
        """The next item, as ``__next__``."""
        return self.__next__()

    # -- what blocks ---------------------------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.result``."""
        return self._blocking(self._inner.result, timeout)

    def exception(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.exception``."""
        return self._blocking(self._inner.exception, timeout)

    def traceback(self, timeout: float | None = None) -> Any:
        """As ``grpc.Future.traceback``."""
        return self._blocking(self._inner.traceback, timeout)

    def initial_metadata(self) -> Any:
        """As ``grpc.Call.initial_metadata``; the call itself may go on."""
        return self._inner.initial_metadata()

    def trailing_metadata(self) -> Any:
        """As ``grpc.Call.trailing_metadata``."""
        return self._blocking(self._inner.trailing_metadata)

    def code(self) -> Any:
        """As ``grpc.Call.code``."""
        return self._blocking(self._inner.code)

    def details(self) -> Any:
        """As ``grpc.Call.details``."""
        return self._blocking(self._inner.details)

    def _blocking(self, method: Callable[..., Any], *timeout: float | None) -> Any:
        """Run what may block until the call ends, as a wait for it; settle it before anybody learns how it ended."""
        if self._settled or self._inner.done():
            self._settle()
            return method(*timeout)
        wait = self._session.begin_wait(self._made, *timeout)
        try:
            return method(*timeout)
        finally:
            self._settle_if_done()
            self._session.end_wait(wait)

    # -- what does not -------------------------------------------------------------------------------------------------

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
        return bool(self._inner.cancel())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """As ``grpc.RpcContext.add_callback``; ours was added first, so the call is settled by then."""
        return bool(self._inner.add_callback(callback))

    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        """As ``grpc.Future.add_done_callback``; ``fn`` gets this very object."""
        self._inner.add_done_callback(lambda _: fn(self))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _after_settling(self, answer: object) -> object:
        self._settle_if_done()
        return answer

    def _settle_if_done(self) -> None:
        if not self._settled and self._inner.done():
            self._settle()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            settle_ended(self._live, self._made, self._inner)
