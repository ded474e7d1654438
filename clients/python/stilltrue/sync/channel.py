"""Calls made from threads: a ``grpc.Channel`` whose calls are stamped and recorded, and are otherwise as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from stilltrue.protocol.ledger import ChannelRecord, ClientCall
from stilltrue.runtime.atomic import StepError
from stilltrue.runtime.recorder import Metadata, stamp_in
from stilltrue.runtime.retry_policy import ONE, RetryPolicy
from stilltrue.runtime.session import Session
from stilltrue.sync.call import RecordedCall, RecordedRequests, leaves_doubt


class RecordedChannel(grpc.Channel):
    """A channel as any other, but that what is called on it is recorded."""

    def __init__(self, inner: grpc.Channel, session: Session, target: str, policy: RetryPolicy = ONE) -> None:
        """``inner`` does the work; ``target`` is the address as dialled; ``policy``: how often a call may be sent on it."""
        self._inner = inner
        self._session = session
        self._record = ChannelRecord(target, copies_max=policy.most, hedged=policy.hedged)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        """As ``grpc.Channel.subscribe``."""
        self._inner.subscribe(callback, try_to_connect=try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        """As ``grpc.Channel.unsubscribe``."""
        self._inner.unsubscribe(callback)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_unary``."""
        inner = self._inner.unary_unary(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _UnaryUnary(inner, self._session, self._record, method)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_stream``."""
        inner = self._inner.unary_stream(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _UnaryStream(inner, self._session, self._record, method)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_unary``."""
        inner = self._inner.stream_unary(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _StreamUnary(inner, self._session, self._record, method)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_stream``."""
        inner = self._inner.stream_stream(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _StreamStream(inner, self._session, self._record, method)

    def close(self) -> None:
        """As ``grpc.Channel.close``."""
        self._inner.close()

    def __enter__(self) -> RecordedChannel:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._inner.__exit__(*exception)


class _Callable:
    """What the four kinds of multi-callable share: the inner one, and how a call on it begins and ends."""

    __slots__ = ("_inner", "_live", "_method", "_now", "_record", "_sent", "_session", "_settled", "_with_call")

    def __init__(self, inner: Any, session: Session, record: ChannelRecord, method: str) -> None:
        self._inner = inner
        self._session = session
        self._live = session.live
        self._record = record
        self._method = method
        self._now = session.parties.now
        self._sent = session.live.sent
        self._settled = session.live.settled
        self._with_call: Any = getattr(inner, "with_call", None)  # streams of replies have none

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _begin(
        self, timeout: float | None, metadata: Metadata, waiting: bool, streams: bool = False
    ) -> tuple[ClientCall | None, Any]:
        """The record of a new call and the metadata with its stamp; (None, as they were) when that failed.

        Who sends the items of a request stream is unknown, so its call has no party (and its reader waits explicitly).
        """
        try:
            made, pair = self._sent(self._method, self._record, None if streams else self._now(), timeout, waiting)
        except StepError:
            raise  # the application's own mistake
        except Exception:  # noqa: BLE001 - fail open: the call goes on unrecorded
            self._live.report_failure("a call begins")
            return None, metadata
        return made, (*metadata, pair) if metadata else (pair,)

    def _answered(self, made: ClientCall, call: Any) -> None:
        try:
            state = getattr(call, "_state", None)  # asking the call itself takes its lock, and a walk through a queue
            self._settled(made, stamp_in(call.trailing_metadata() if state is None else state.trailing_metadata), False)
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("a call ends")

    def _failed(self, made: ClientCall, error: BaseException) -> None:
        try:
            stamp, code = None, None
            if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
                stamp, code = stamp_in(error.trailing_metadata()), error.code()
            self._live.settled(made, stamp, stamp is None and leaves_doubt(code))
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("a call fails")


class _UnaryUnary(_Callable, grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        return self.with_call(request, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        made = None
        try:  # written out, as the one path that nearly every call takes
            made, pair = self._sent(self._method, self._record, self._now(), timeout, True)
        except StepError:
            raise
        except Exception:  # noqa: BLE001 - fail open: the call goes on unrecorded
            self._live.report_failure("a call begins")
        else:
            metadata = (*metadata, pair) if metadata else (pair,)
        try:
            result = self._with_call(request, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            if made is not None:
                self._failed(made, error)
            raise
        if made is not None:
            self._answered(made, result[1])
        return result

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, False)
        try:
            inner = self._inner.future(request, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            if made is not None:
                self._failed(made, error)
            raise
        return inner if made is None else RecordedCall(inner, self._session, made)


class _UnaryStream(_Callable, grpc.UnaryStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, False)
        try:
            inner = self._inner(request, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            if made is not None:
                self._failed(made, error)
            raise
        return inner if made is None else RecordedCall(inner, self._session, made)


class _StreamUnary(_Callable, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        return self._call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        return self._call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)

    def _call(self, requests: Any, timeout: Any, metadata: Any, credentials: Any, wait_for_ready: Any, compression: Any) -> Any:
        made, metadata = self._begin(timeout, metadata, False, True)
        if made is None:
            return self._inner.with_call(requests, timeout, metadata, credentials, wait_for_ready, compression)
        requests = RecordedRequests(requests, self._live, made)
        wait = self._session.begin_wait(made)
        try:
            result = self._inner.with_call(requests, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            self._failed(made, error)
            raise
        finally:
            self._session.end_wait(wait)
        self._answered(made, result[1])
        return result

    def future(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, False, True)
        if made is not None:
            request_iterator = RecordedRequests(request_iterator, self._live, made)
        try:
            inner = self._inner.future(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            if made is not None:
                self._failed(made, error)
            raise
        return inner if made is None else RecordedCall(inner, self._session, made)


class _StreamStream(_Callable, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, False, True)
        if made is not None:
            request_iterator = RecordedRequests(request_iterator, self._live, made)
        try:
            inner = self._inner(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        except BaseException as error:
            if made is not None:
                self._failed(made, error)
            raise
        return inner if made is None else RecordedCall(inner, self._session, made)
