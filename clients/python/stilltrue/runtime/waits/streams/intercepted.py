"""Writes of ``grpc.aio`` that gRPC keeps until the call's client interceptors have returned (grpc/grpc 34530).

Rules:

1. Until the interceptors have returned, who writes a request waits for the task that runs them, and so does gRPC's own task
   that would send it.
2. If an interceptor awaits the reply or the end of such a call, their task waits for the call, whose server may wait for a
   request. Interceptors get gRPC's own call object, which is that of a recorded call if it was made with that call's stamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stilltrue.model import CallNumber, ProcessName
from stilltrue.protocol.report import CallTarget
from stilltrue.protocol.stamp import decode
from stilltrue.runtime import compat
from stilltrue.runtime.calls.stamps import STAMP_KEYS
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_FILE, _INTERCEPTORS = "grpc/aio/_call.py", "grpc/aio/_interceptor.py"
_ENDS = (
    "Call.code",
    "Call.details",
    "Call.trailing_metadata",
    "Call.debug_error_string",
    "Call._raise_for_status",
    "_UnaryResponseMixin.__await__",
)
"""gRPC's functions that await a call's only reply or its end."""
_WRITES = ("write", "done_writing", "_proxy_writes_as_request_iterator")


def _read_write(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    """Rule 1."""
    if not compat.runs_interceptors(stack.future):
        return None
    return SeenWait(on=stack.future, enders=(stack.future,), what="{}, which runs a call's interceptors", once=True)


def _read_end(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 2."""
    call = variables_of(stack.frames[at]).get("self")
    feeder = compat.feeder_of(call)
    number = None if feeder is None or blocking_future(feeder) is not stack.task else number_of(call, view.process)
    if stack.future is None or number is None:
        return None
    what = "the end of a call, in an interceptor"
    return SeenWait(on=stack.future, enders=(CallTarget(number=number),), what=what, handles=(call,), once=True)


def number_of(call: Any, process: ProcessName) -> CallNumber | None:
    """The number of the recorded call of this process to which gRPC's object belongs (rule 2)."""
    entries: Iterable[Any] = compat.request_metadata_of(call)
    stamps = [stamp for key, value in entries if key in STAMP_KEYS and (stamp := decode(value)) is not None]
    return stamps[0].number if len(stamps) == 1 and stamps[0].source == process else None


RESOLVERS = (
    Resolver(tuple((_FILE, name) for name in _ENDS), _read_end, of_shells=True),
    Resolver(tuple((_INTERCEPTORS, f"_InterceptedStreamRequestMixin.{name}") for name in _WRITES), _read_write, of_shells=True),
)
