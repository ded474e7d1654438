"""A ``grpc.Channel`` that stamps and records the calls made on it, and changes nothing else about them."""

from __future__ import annotations

from asyncio import _get_running_loop  # the documented way that does not raise
from collections.abc import Callable
from typing import Any

import grpc

from stilltrue.protocol.books.ledger import ClientCall
from stilltrue.protocol.step import StepError
from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import OutgoingCall, RecordedMethod, RecordedMethods
from stilltrue.runtime.calls.service_config import NO_CONFIG, ServiceConfig
from stilltrue.runtime.calls.stamps import with_stamp
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.compat import reply_of
from stilltrue.runtime.session import Session
from stilltrue.sync.call import OutgoingRequests, record_call, take_trailing


class RecordedChannel(StandIn, grpc.Channel):
    """A ``grpc.Channel`` that records its calls."""

    def __init__(self, inner: grpc.Channel, session: Session, target: str, config: ServiceConfig = NO_CONFIG) -> None:
        """``inner`` does the work; ``target`` is the address as dialled; ``config``: how gRPC treats calls."""
        self._inner = inner
        self._methods = RecordedMethods(session, target, config, inner)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        """As ``grpc.Channel.subscribe``."""
        self._inner.subscribe(callback, try_to_connect=try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        """As ``grpc.Channel.unsubscribe``."""
        self._inner.unsubscribe(callback)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_unary``."""
        return self._methods.recorded(_UnaryUnary, method, self._inner.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.unary_stream``."""
        return self._methods.recorded(_UnaryStream, method, self._inner.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_unary``."""
        return self._methods.recorded(_StreamUnary, method, self._inner.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.Channel.stream_stream``."""
        return self._methods.recorded(_StreamStream, method, self._inner.stream_stream(method, *args, **kwargs))

    def close(self) -> None:
        """As ``grpc.Channel.close``."""
        self._inner.close()

    def __enter__(self) -> RecordedChannel:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._inner.__exit__(*exception)


class _Callable(StandIn):
    """Base of the four kinds of multi-callable: the inner one, and how a call on it begins and ends."""

    __slots__ = ("_begin", "_blocking", "_inner", "_live", "_method", "_now", "_parties", "_session", "_with_call")

    def __init__(self, inner: Any, method: RecordedMethod) -> None:
        self._inner = inner
        self._method = method
        self._session = method.session
        self._live = method.session.live
        self._begin = method.begin
        self._parties = method.session.parties
        self._now = method.session.parties.current
        self._with_call: Any = getattr(inner, "with_call", None)  # None for reply streams
        self._blocking = compat.blocking_call_of(inner)

    def _run(self, call: OutgoingCall | None, make: Callable[..., Any], *arguments: Any, **further: Any) -> Any:
        """Start the call; returns gRPC's call object, wrapped so that it is recorded."""
        try:
            inner = make(*arguments, **further)
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        return inner if call is None else record_call(inner, call)

    def _run_blocking(self, call: OutgoingCall, *arguments: Any, **further: Any) -> Any:
        """Make the call and wait for its end; returns the reply and the ended call object."""
        try:
            result = self._with_call(*arguments, **further)
        except BaseException as error:
            call.failed(error)
            take_trailing(error)
            raise
        call.answered(take_trailing(result[1]))
        return result


class _UnaryUnary(_Callable, grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(self, request: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any) -> Any:
        blocking = self._blocking
        if blocking is None or self._method.timeout is not None:
            return self.with_call(request, timeout, metadata, *rest, **further)[0]
        made: ClientCall | None = None
        method = self._method
        try:
            here = self._parties.here
            party = here.own if (served := here.serving) is None else served.party
            if party is None or _get_running_loop() is not None:
                party = self._now()
            made, pair = self._live.sent(method.name, method.channel, party, timeout, True)
            metadata = with_stamp(metadata, pair) if metadata else (pair,)
        except StepError:
            raise
        except Exception:  # noqa: BLE001 - fail open: the call goes on unrecorded
            self._live.report_failure("starting a call")
        try:
            state, core = blocking(request, timeout, metadata, *rest, **further)
            reply = reply_of(state, core, False, None)
        except BaseException as error:
            if made is not None:
                OutgoingCall(self._session, made).failed(error)
                take_trailing(error)
            raise
        if made is not None:
            if state.trailing_metadata:
                OutgoingCall(self._session, made).answered(state.trailing_metadata)
            else:
                try:
                    self._live.settled(made, None, False)
                except Exception:  # noqa: BLE001 - fail open
                    self._live.report_failure("ending a call")
        return reply

    def with_call(self, request: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any) -> Any:
        made, metadata = self._method.send(self._now, timeout, metadata, True)
        if made is None:
            return self._with_call(request, timeout, metadata, *rest, **further)
        return self._run_blocking(OutgoingCall(self._session, made), request, timeout, metadata, *rest, **further)

    def future(self, request: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any) -> Any:
        call, metadata = self._begin(self._now, timeout, metadata)
        return self._run(call, self._inner.future, request, timeout, metadata, *rest, **further)


class _UnaryStream(_Callable, grpc.UnaryStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(self, request: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any) -> Any:
        call, metadata = self._begin(self._now, timeout, metadata)
        return self._run(call, self._inner, request, timeout, metadata, *rest, **further)


class _RequestStream(_Callable):
    """A call with a stream of requests. It has no party, since any thread may send its items; its reader waits explicitly."""

    __slots__ = ()

    def _begin_stream(self, requests: Any, timeout: float | None, metadata: Any) -> Any:
        call, metadata = self._begin(None, timeout, metadata)
        return call, requests if call is None else OutgoingRequests(requests, call), metadata


class _StreamUnary(_RequestStream, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        return self.with_call(request_iterator, timeout, metadata, *rest, **further)[0]

    def with_call(
        self, request_iterator: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        if call is None:
            return self._with_call(requests, timeout, metadata, *rest, **further)
        wait = call.begin_wait()
        try:
            return self._run_blocking(call, requests, timeout, metadata, *rest, **further)
        finally:
            call.end_wait(wait)

    def future(
        self, request_iterator: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        return self._run(call, self._inner.future, requests, timeout, metadata, *rest, **further)


class _StreamStream(_RequestStream, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        call, requests, metadata = self._begin_stream(request_iterator, timeout, metadata)
        return self._run(call, self._inner, requests, timeout, metadata, *rest, **further)
