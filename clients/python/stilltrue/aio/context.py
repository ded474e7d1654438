"""Wrappers of the contexts passed to behaviours on an event loop; they count items and stamp aborts."""

from __future__ import annotations

from typing import Any

import grpc.aio

from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.calls.stamps import hide_stamp
from stilltrue.runtime.calls.stand_in import StandIn


class RecordedContext(StandIn):
    """Wraps the context of a call served by a task."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Any, call: IncomingCall) -> None:
        """``inner`` is gRPC's context."""
        self._inner = inner
        self._call = call

    def invocation_metadata(self) -> Any:
        """As ``grpc.aio.ServicerContext.invocation_metadata``."""
        return hide_stamp(self._inner.invocation_metadata())

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """As ``grpc.aio.ServicerContext.send_initial_metadata``."""
        await self._inner.send_initial_metadata(hide_stamp(initial_metadata))

    def add_done_callback(self, callback: Any) -> None:
        """As ``grpc.aio.ServicerContext.add_done_callback``."""
        self._inner.add_done_callback(self._call.as_work(callback))

    async def read(self) -> Any:
        """As ``grpc.aio.ServicerContext.read``."""
        call = self._call
        wait = call.begin_wait()
        try:
            item = await self._inner.read()
        except BaseException:
            call.end_wait(wait)
            raise
        if item is grpc.aio.EOF:
            call.end_wait(wait)
        else:
            call.item_received(wait)
        return item

    async def write(self, message: Any) -> None:
        """As ``grpc.aio.ServicerContext.write``."""
        await self._inner.write(message)
        self._call.item_sent()

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:
        """As ``grpc.aio.ServicerContext.abort``. It sends the reply, so the stamp is added here."""
        await self._inner.abort(
            code, details, self._call.end(trailing_metadata or self._inner.trailing_metadata(), failed=True)
        )

    async def abort_with_status(self, status: Any) -> Any:
        """As ``grpc.aio.ServicerContext.abort_with_status``."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())


class RecordedSyncContext(StandIn):
    """Wraps the context of a behaviour in gRPC's migration pool."""

    def __init__(self, inner: Any, call: IncomingCall) -> None:
        """``inner`` is gRPC's context. Its trailing metadata and status cannot be read back, so copies are kept here."""
        self._inner = inner
        self._call = call
        self.recorded_trailing: Any = ()
        self.recorded_status: Any = None

    def invocation_metadata(self) -> Any:
        """As ``grpc.ServicerContext.invocation_metadata``."""
        return hide_stamp(self._inner.invocation_metadata())

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """As ``grpc.ServicerContext.send_initial_metadata``."""
        self._inner.send_initial_metadata(hide_stamp(initial_metadata))

    def add_callback(self, callback: Any) -> None:
        """As the method of the inner context."""
        self._inner.add_callback(self._call.as_work(callback))

    def set_code(self, code: Any) -> None:
        """As ``grpc.ServicerContext.set_code``."""
        self._inner.set_code(code)
        self.recorded_status = code

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """As ``grpc.ServicerContext.set_trailing_metadata``."""
        self._inner.set_trailing_metadata(trailing_metadata)
        self.recorded_trailing = tuple(trailing_metadata)

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:
        """As ``grpc.ServicerContext.abort``. It sends the reply, so the stamp is added here."""
        self._inner.abort(code, details, self._call.end(trailing_metadata or self.recorded_trailing, failed=True))
