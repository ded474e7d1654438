"""Calls made from threads: a ``grpc.Channel`` whose calls are stamped and recorded, and are otherwise as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from stilltrue.runtime.outgoing_call import OutgoingCall, RecordedMethod, RecordedMethods
from stilltrue.runtime.service_config import NO_CONFIG, ServiceConfig
from stilltrue.runtime.session import Session
from stilltrue.runtime.stamps import hide_stamp
from stilltrue.runtime.stand_in import StandIn
from stilltrue.sync.call import RecordedRequests, record_call


class RecordedChannel(StandIn, grpc.Channel):
    """A ``grpc.Channel`` that records its calls."""

    def __init__(self, inner: grpc.Channel, session: Session, target: str, config: ServiceConfig = NO_CONFIG) -> None:
        """``inner`` does the work; ``target`` is the address as dialled; ``config``: how gRPC treats calls."""
        self._inner = inner
        self._methods = RecordedMethods(session, target, config)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        """As ``grpc.Channel.subscribe``."""
        self._inner.subscribe(callback, try_to_connect=try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        """As ``grpc.Channel.unsubscribe``."""
        self._inner.unsubscribe(callback)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_unary``."""
        inner = self._inner.unary_unary(method, *args, **kwargs)
        return _UnaryUnary(inner, known) if (known := self._methods.of(method)) else inner

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_stream``."""
        inner = self._inner.unary_stream(method, *args, **kwargs)
        return _UnaryStream(inner, known) if (known := self._methods.of(method)) else inner

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_unary``."""
        inner = self._inner.stream_unary(method, *args, **kwargs)
        return _StreamUnary(inner, known) if (known := self._methods.of(method)) else inner

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_stream``."""
        inner = self._inner.stream_stream(method, *args, **kwargs)
        return _StreamStream(inner, known) if (known := self._methods.of(method)) else inner

    def close(self) -> None:
        """As ``grpc.Channel.close``."""
        self._inner.close()

    def __enter__(self) -> RecordedChannel:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._inner.__exit__(*exception)


class _Callable(StandIn):
    """What the four kinds of multi-callable share: the inner one, and how a call on it begins and ends."""

    __slots__ = ("_begin", "_inner", "_now", "_with_call")

    def __init__(self, inner: Any, method: RecordedMethod) -> None:
        self._inner = inner
        self._begin = method.begin
        self._now = method.session.parties.now
        self._with_call: Any = getattr(inner, "with_call", None)  # streams of replies have none

    def _run(self, call: OutgoingCall | None, make: Callable[..., Any], *arguments: Any) -> Any:
        """What gRPC returns for a call that goes on."""
        try:
            inner = make(*arguments)
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        return inner if call is None else record_call(inner, call)

    def _run_blocking(self, call: OutgoingCall, *arguments: Any) -> Any:
        """What gRPC returns for a call that is over by then: its reply, and the call."""
        try:
            result = self._with_call(*arguments)
        except BaseException as error:
            call.failed(error)
            _take_trailing(error)
            raise
        call.answered(_take_trailing(result[1]))
        return result


def _take_trailing(ended: Any) -> Any:
    """The trailing metadata of an ended call of gRPC's, as they came; the application will see them without the stamp."""
    state = getattr(ended, "_state", None)  # asking the call itself takes its lock, and a walk through a queue
    if state is not None:
        trailing = state.trailing_metadata
        state.trailing_metadata = hide_stamp(trailing)
        return trailing
    try:
        return ended.trailing_metadata()
    except Exception:  # noqa: BLE001 - an interceptor's own object, which has none
        return None


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
        call, metadata = self._begin(self._now, timeout, metadata, waiting=True)
        if call is None:
            return self._with_call(request, timeout, metadata, credentials, wait_for_ready, compression)
        return self._run_blocking(call, request, timeout, metadata, credentials, wait_for_ready, compression)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        call, metadata = self._begin(self._now, timeout, metadata)
        return self._run(call, self._inner.future, request, timeout, metadata, credentials, wait_for_ready, compression)


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
        call, metadata = self._begin(self._now, timeout, metadata)
        return self._run(call, self._inner, request, timeout, metadata, credentials, wait_for_ready, compression)


class _Sending(_Callable):
    """A call with a stream of requests. Who sends its items is unknown, so it has no party; its reader waits explicitly."""

    __slots__ = ()

    def _begin_stream(self, requests: Any, timeout: float | None, metadata: Any) -> Any:
        call, metadata = self._begin(None, timeout, metadata)
        return call, requests if call is None else RecordedRequests(requests, call), metadata


class _StreamUnary(_Sending, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        return self.with_call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        if call is None:
            return self._with_call(requests, timeout, metadata, credentials, wait_for_ready, compression)
        wait = call.begin_wait()
        try:
            return self._run_blocking(call, requests, timeout, metadata, credentials, wait_for_ready, compression)
        finally:
            call.end_wait(wait)

    def future(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        return self._run(call, self._inner.future, requests, timeout, metadata, credentials, wait_for_ready, compression)


class _StreamStream(_Sending, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self,
        request_iterator: Any,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        return self._run(call, self._inner, requests, timeout, metadata, credentials, wait_for_ready, compression)
