"""The context that a behaviour on an event loop is given: gRPC's own, but items are counted and an abort is stamped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio

if TYPE_CHECKING:
    from stilltrue.aio.server import Service


class RecordedContext:
    """Stands before gRPC's context of a call; what it does not name passes through."""

    __slots__ = ("_inner", "_service")

    def __init__(self, inner: Any, service: Service) -> None:
        """``inner`` is gRPC's context."""
        self._inner = inner
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self) -> Any:
        """As ``grpc.aio.ServicerContext.read``."""
        with self._service.next_request() as received:
            item = await self._inner.read()
            if item is not grpc.aio.EOF:
                received()
            return item

    async def write(self, message: Any) -> None:
        """As ``grpc.aio.ServicerContext.write``."""
        await self._inner.write(message)
        self._service.sent_item()

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:
        """As ``grpc.aio.ServicerContext.abort``, which sends the reply: it is stamped here."""
        trailing = trailing_metadata or self._inner.trailing_metadata()
        await self._inner.abort(code, details, self._service.reply(trailing))

    async def abort_with_status(self, status: Any) -> Any:
        """As ``grpc.aio.ServicerContext.abort_with_status``."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())


class RecordedSyncContext:
    """Stands before the context that gRPC gives to a behaviour in its migration pool."""

    def __init__(self, inner: Any, service: Service) -> None:
        """``inner`` is gRPC's context; it cannot tell the trailing metadata it was given, so they are kept here."""
        self._inner = inner
        self._service = service
        self.trailing: Any = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """As ``grpc.ServicerContext.set_trailing_metadata``."""
        self._inner.set_trailing_metadata(trailing_metadata)
        self.trailing = tuple(trailing_metadata)

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:
        """As ``grpc.ServicerContext.abort``, which sends the reply: it is stamped here."""
        self._inner.abort(code, details, self._service.reply(trailing_metadata or self.trailing))


class RecordedRequests:
    """The requests of a streaming call; whoever takes the next one waits for the caller."""

    __slots__ = ("_inner", "_service")

    def __init__(self, inner: Any, service: Service) -> None:
        """``inner`` is gRPC's asynchronous iterator."""
        self._inner = inner
        self._service = service

    def __aiter__(self) -> RecordedRequests:
        return self

    async def __anext__(self) -> Any:
        with self._service.next_request() as received:
            item = await self._inner.__anext__()
            received()
            return item


class RecordedSyncRequests:
    """The same for a behaviour in the migration pool."""

    __slots__ = ("_inner", "_service")

    def __init__(self, inner: Any, service: Service) -> None:
        """``inner`` is gRPC's iterator."""
        self._inner = inner
        self._service = service

    def __iter__(self) -> RecordedSyncRequests:
        return self

    def __next__(self) -> Any:
        with self._service.next_request() as received:
            item = next(self._inner)
            received()
            return item
