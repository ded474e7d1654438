"""The context that a behaviour on a thread is given: gRPC's own, under a class of ours, so that it stays the same object.

A context that is not gRPC's (an interceptor before ours has put its own there) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpc import _server

from stilltrue.runtime.incoming_call import IncomingCall
from stilltrue.runtime.stamps import hide_stamp

_PLAIN: type = _server._Context  # noqa: SLF001 - the class whose objects gRPC gives to handlers


class RecordedContext(_PLAIN):  # type: ignore[misc]  # gRPC has no types for it
    """As ``grpc.ServicerContext``, which neither shows nor sends a stamp of somebody else's."""

    recorded_call: IncomingCall

    def invocation_metadata(self) -> Any:
        """As ``grpc.ServicerContext.invocation_metadata``."""
        return hide_stamp(super().invocation_metadata())

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """As ``grpc.ServicerContext.send_initial_metadata``."""
        super().send_initial_metadata(hide_stamp(initial_metadata))

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """As ``grpc.RpcContext.add_callback``."""
        return bool(super().add_callback(self.recorded_call.counted(callback)))


def record_context(context: Any, call: IncomingCall) -> None:
    """Make ``context`` a :class:`RecordedContext`, if it is gRPC's."""
    is_plain = type(context) is _PLAIN
    if is_plain:
        context.__class__ = RecordedContext
        context.recorded_call = call
