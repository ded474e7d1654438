"""The context passed to a behaviour on a thread: gRPC's own object with its class replaced by ours.

If an earlier interceptor has wrapped the context, gRPC's object is looked for inside; if it is not found, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc import _server

from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.calls.stamps import hide_stamp

PLAIN: Any = _server._Context  # noqa: SLF001 - the class of the contexts that gRPC passes to handlers
_WRAPPERS_MAX = 3


class RecordedContext(PLAIN):  # type: ignore[misc]  # gRPC has no types for it
    """A ``grpc.ServicerContext`` that neither shows nor sends another call's stamp."""

    recorded_call: IncomingCall

    def has_ended(self) -> bool:
        """Whether gRPC has run the callbacks for the end of the call."""
        return self._state.callbacks is None

    def invocation_metadata(self) -> Any:
        """As ``grpc.ServicerContext.invocation_metadata``."""
        return hide_stamp(super().invocation_metadata())

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """As ``grpc.ServicerContext.send_initial_metadata``."""
        super().send_initial_metadata(hide_stamp(initial_metadata))

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """As ``grpc.RpcContext.add_callback``."""
        return bool(super().add_callback(self.recorded_call.as_work(callback)))


def is_unanswered(context: Any) -> bool:
    """Whether gRPC has neither sent the status of the call nor seen its end; False if the context is not gRPC's own."""
    return type(context) is RecordedContext and not (context.has_ended() or context._state.statused)  # noqa: SLF001


def record_context(context: Any, call: IncomingCall) -> None:
    """Turn gRPC's context, which is ``context`` or wrapped in it, into a :class:`RecordedContext`."""
    plain = _unwrap(context, _WRAPPERS_MAX)
    if plain is not None:
        plain.__class__ = RecordedContext
        plain.recorded_call = call


def _unwrap(context: Any, wrappers: int) -> Any:
    """Find gRPC's own context inside at most ``wrappers`` objects of interceptors; None if it is not there."""
    if type(context) is PLAIN:
        return context
    if wrappers and isinstance(context, grpc.ServicerContext):
        for inner in getattr(context, "__dict__", {}).values():
            if (found := _unwrap(inner, wrappers - 1)) is not None:
                return found
    return None
