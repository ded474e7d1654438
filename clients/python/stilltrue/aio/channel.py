"""Calls made on an event loop: a ``grpc.aio.Channel`` whose calls are stamped and recorded, and are otherwise as they were."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from stilltrue.aio.call import (
    RecordedRequests,
    RecordedStreamStreamCall,
    RecordedStreamUnaryCall,
    RecordedUnaryStreamCall,
    RecordedUnaryUnaryCall,
)
from stilltrue.protocol.ledger import ChannelRecord, ClientCall
from stilltrue.runtime.atomic import StepError
from stilltrue.runtime.retry_policy import ONE, RetryPolicy
from stilltrue.runtime.session import Session


class RecordedAioChannel(grpc.aio.Channel):
    """A channel as any other, but that what is called on it is recorded."""

    def __init__(self, inner: grpc.aio.Channel, session: Session, target: str, policy: RetryPolicy = ONE) -> None:
        """``inner`` does the work; ``target`` is the address as dialled; ``policy``: how often a call may be sent on it."""
        self._inner = inner
        self._session = session
        self._record = ChannelRecord(target, copies_max=policy.most, hedged=policy.hedged)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

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
        inner = self._inner.unary_unary(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _UnaryUnary(inner, self._session, self._record, method)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.unary_stream``."""
        inner = self._inner.unary_stream(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _UnaryStream(inner, self._session, self._record, method)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.stream_unary``."""
        inner = self._inner.stream_unary(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _StreamUnary(inner, self._session, self._record, method)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As ``grpc.aio.Channel.stream_stream``."""
        inner = self._inner.stream_stream(method, *args, **kwargs)
        return inner if self._session.leaves_out(method) else _StreamStream(inner, self._session, self._record, method)


class _Callable:
    """What the four kinds of multi-callable share: the inner one, and how a call on it begins."""

    def __init__(self, inner: Any, session: Session, record: ChannelRecord, method: str) -> None:
        self._inner = inner
        self._session = session
        self._record = record
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _begin(self, timeout: float | None, metadata: Any, *, streams: bool = False) -> tuple[ClientCall | None, Any]:
        """The record of a new call and the metadata with its stamp; (None, as they were) when that failed.

        Who sends the items of a request stream is unknown, so its call has no party.
        """
        session = self._session
        try:
            party = None
            if not streams:
                task = asyncio.current_task()
                party = None if task is None else session.parties.of_current(task)
            made, pair = session.live.sent(self._method, self._record, party, timeout, False)
        except StepError:
            raise  # the application's own mistake
        except Exception:  # noqa: BLE001 - fail open: the call goes on unrecorded
            session.live.report_failure("a call begins")
            return None, metadata
        return made, (*metadata, pair) if metadata else (pair,)

    def _failed(self, made: ClientCall | None) -> None:
        """The call could not even be made."""
        if made is not None:
            self._session.live.settled(made, None, True)


class _UnaryUnary(_Callable, grpc.aio.UnaryUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None, **further: Any) -> Any:
        made, metadata = self._begin(timeout, metadata)
        try:
            inner = self._inner(request, timeout=timeout, metadata=metadata, **further)
        except BaseException:
            self._failed(made)
            raise
        return inner if made is None else RecordedUnaryUnaryCall(inner, self._session, made)


class _UnaryStream(_Callable, grpc.aio.UnaryStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None, **further: Any) -> Any:
        made, metadata = self._begin(timeout, metadata)
        try:
            inner = self._inner(request, timeout=timeout, metadata=metadata, **further)
        except BaseException:
            self._failed(made)
            raise
        return inner if made is None else RecordedUnaryStreamCall(inner, self._session, made)


class _StreamUnary(_Callable, grpc.aio.StreamUnaryMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any = None, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, streams=True)
        if made is not None and request_iterator is not None:
            request_iterator = RecordedRequests(request_iterator, self._session.live, made)
        try:
            inner = self._inner(request_iterator, timeout, metadata, *rest, **further)
        except BaseException:
            self._failed(made)
            raise
        return inner if made is None else RecordedStreamUnaryCall(inner, self._session, made)


class _StreamStream(_Callable, grpc.aio.StreamStreamMultiCallable):  # type: ignore[type-arg]  # generic in the stubs alone
    def __call__(
        self, request_iterator: Any = None, timeout: float | None = None, metadata: Any = None, *rest: Any, **further: Any
    ) -> Any:
        made, metadata = self._begin(timeout, metadata, streams=True)
        if made is not None and request_iterator is not None:
            request_iterator = RecordedRequests(request_iterator, self._session.live, made)
        try:
            inner = self._inner(request_iterator, timeout, metadata, *rest, **further)
        except BaseException:
            self._failed(made)
            raise
        return inner if made is None else RecordedStreamStreamCall(inner, self._session, made)
