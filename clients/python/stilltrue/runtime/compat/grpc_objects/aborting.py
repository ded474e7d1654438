"""Ends gRPC calls from outside: one that a thread serves, or one that a thread waits for."""

from __future__ import annotations

from types import FrameType
from typing import Any

import grpc
from grpc import _server
from grpc._cython import cygrpc

from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.introspection.frames import variables_of

_BLOCKING = "_blocking"


def abort_served(context: Any, text: str) -> bool:
    """End the call that a thread serves with ABORTED; return False if the call is over or cannot be ended.

    The handler keeps running; its later results are dropped, as if the caller had gone.
    """
    state, event = getattr(context, "_state", None), getattr(context, "_rpc_event", None)
    if state is None or event is None:
        return False
    with state.condition:
        if state.client is _server._CANCELLED or state.statused:  # noqa: SLF001
            return False
        state.code, state.details = grpc.StatusCode.ABORTED, text.encode()
        _server._abort(state, event.call, cygrpc.StatusCode.aborted, text.encode())  # noqa: SLF001
        state.aborted = True
        state.client = _server._CANCELLED  # noqa: SLF001
        state.condition.notify_all()
    return True


def cancel_awaited(frame: FrameType, text: str) -> bool:
    """End the call that gRPC awaits in this frame (threads) with ABORTED; return False if it awaits none."""
    if frame.f_code.co_name != _BLOCKING or not is_grpc(frame.f_code.co_filename):
        return False
    call = variables_of(frame).get("call")
    if call is None:
        return False
    call.cancel(cygrpc.StatusCode.aborted, text)
    return True
