"""A ``grpc.aio.Channel`` that stamps and records the calls made on it, and changes nothing else about them."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from stilltrue.aio.call import (
    OutgoingRequests,
    RecordedStreamStreamCall,
    RecordedStreamUnaryCall,
    RecordedUnaryStreamCall,
    RecordedUnaryUnaryCall,
    record_call,
)
from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import OutgoingCall, RecordedMethod, RecordedMethods
from stilltrue.runtime.calls.service_config import NO_CONFIG, ServiceConfig
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.session import Session


class RecordedAioChannel(StandIn, grpc.aio.Channel):
    """A ``grpc.aio.Channel`` that records its calls."""

    def __init__(self, inner: grpc.aio.Channel, session: Session, target: str, config: ServiceConfig = NO_CONFIG) -> None:
        """``inner`` does the work; ``target`` is the address as dialled; ``config``: how gRPC treats calls."""
        self._inner = inner
        self._methods = RecordedMethods(session, target, config, inner)

    async def __aenter__(self) -> RecordedAioChannel:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> Any:
        return await self._inner.__aexit__(*exception)

    async def close(self, grace: float | None = None) -> None:
        """As ``grpc.aio.Channel.close``."""
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """As ``grpc.aio.Channel.get_state``."""
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """As ``grpc.aio.Channel.wait_for_state_change``."""
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """As ``grpc.aio.Channel.channel_ready``."""
        await self._inner.channel_ready()

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.unary_unary``."""
        return self._methods.recorded(_UnaryUnary, method, self._inner.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.unary_stream``."""
        return self._methods.recorded(_UnaryStream, method, self._inner.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.stream_unary``."""
        return self._methods.recorded(_StreamUnary, method, self._inner.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.stream_stream``."""
        return self._methods.recorded(_StreamStream, method, self._inner.stream_stream(method, *args, **kwargs))


class _Callable(StandIn):
    """Base of the four kinds of multi-callable: the inner one, and how a call on it begins."""

    __slots__ = ("_inner", "_method", "_now", "_reads_pairs")
    kind: type

    def __init__(self, inner: Any, method: RecordedMethod) -> None:
        self._inner = inner
        self._method = method
        self._reads_pairs = compat.only_iterates_metadata(inner)
        self._now = method.session.parties.of_running_task


_Pairs: Any = type("_Pairs", (tuple, grpc.aio.Metadata), {"__init__": object.__init__})
"""Metadata for gRPC to iterate; ``grpc.aio.Metadata`` itself would first build a dictionary."""


class _SingleRequest(_Callable):
    __slots__ = ()

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None, **further: Any) -> Any:
        is_sorted = not metadata or type(metadata) is grpc.aio.Metadata
        method = self._method
        made, metadata = method.send(self._now, timeout, metadata, False)
        if made is None:
            return self._inner(request, timeout=timeout, metadata=metadata, **further)
        call = OutgoingCall(method.session, made)
        if is_sorted and self._reads_pairs:
            metadata = _Pairs(metadata)
        try:
            inner = self._inner(request, timeout=timeout, metadata=metadata, **further)
        except BaseException as error:
            call.failed(error)
            raise
        return record_call(inner, call, self.kind)


class _UnaryUnary(_SingleRequest, grpc.aio.UnaryUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    kind = RecordedUnaryUnaryCall


class _UnaryStream(_SingleRequest, grpc.aio.UnaryStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    kind = RecordedUnaryStreamCall


class _RequestStream(_Callable):
    """A call with a stream of requests. It has no party, since any task may send its items."""

    __slots__ = ()

    def _start_stream(self, kind: type, requests: Any, timeout: float | None, metadata: Any, *rest: Any, **further: Any) -> Any:
        is_sorted = not metadata or type(metadata) is grpc.aio.Metadata
        call, metadata = self._method.begin(None, timeout, metadata)
        if call is not None and is_sorted and self._reads_pairs:
            metadata = _Pairs(metadata)
        if call is not None and requests is not None:
            requests = OutgoingRequests(requests, call)
        try:
            inner = self._inner(requests, timeout, metadata, *rest, **further)
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        return inner if call is None else record_call(inner, call, kind)


class _StreamUnary(_RequestStream, grpc.aio.StreamUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any = None, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        return self._start_stream(RecordedStreamUnaryCall, request_iterator, timeout, metadata, *rest, **further)


class _StreamStream(_RequestStream, grpc.aio.StreamStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any = None, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        return self._start_stream(RecordedStreamStreamCall, request_iterator, timeout, metadata, *rest, **further)
