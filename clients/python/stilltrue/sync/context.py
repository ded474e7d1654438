"""The context that a behaviour on a thread is given: gRPC's own, under a class of ours, so that it stays the same object.

Where an interceptor before ours has put its own context there, gRPC's is found behind it; if not, all stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc import _server

from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.calls.stamps import hide_stamp

PLAIN: Any = _server._Context  # noqa: SLF001 - the class whose objects gRPC gives to handlers
_WRAPPERS_MAX = 3


class RecordedContext(PLAIN):  # type: ignore[misc]  # gRPC has no types for it
    """A ``grpc.ServicerContext`` that neither shows nor sends another call's stamp."""

    recorded_call: IncomingCall

    def has_ended(self) -> bool:
        """Whether gRPC has run the callbacks that wait for the end of the call."""
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


def record_context(context: Any, call: IncomingCall) -> None:
    """Make gRPC's context, which is ``context`` or stands behind it, a :class:`RecordedContext`."""
    plain = _plain_behind(context, _WRAPPERS_MAX)
    if plain is not None:
        plain.__class__ = RecordedContext
        plain.recorded_call = call


def _plain_behind(context: Any, wrappers: int) -> Any:
    """gRPC's own context, which an interceptor may have wrapped in ``wrappers`` objects at most; None if it is not found."""
    if type(context) is PLAIN:
        return context
    if wrappers and isinstance(context, grpc.ServicerContext):
        for inner in getattr(context, "__dict__", {}).values():
            if (found := _plain_behind(inner, wrappers - 1)) is not None:
                return found
    return None
