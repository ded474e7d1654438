"""Reads which items of streams gRPC sends, and from which iterators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.compat.callables import Task
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.introspection.frames import variables_of

_FRAMES_IN_WRITE = 5
"""Number of innermost frames of a thread in which gRPC's function that writes an item is found."""


def is_feeding(frame: FrameType) -> bool:
    """Whether this frame is gRPC's thread that feeds a request stream."""
    return _feeds(frame.f_code)


def feeds_stream(function: Any) -> bool:
    """Whether this is gRPC's function that feeds a request stream in a thread of its own."""
    return type(function) is FunctionType and _feeds(function.__code__)


def _feeds(code: CodeType) -> bool:
    return code.co_name == "consume_request_iterator" and is_grpc(code.co_filename)


def requests_being_sent(frames: Sequence[FrameType]) -> Any:
    """The iterator of a call's requests, one of which gRPC is sending in a thread with these frames; None if it is not."""
    for inner, outer in pairwise(frames[:_FRAMES_IN_WRITE]):
        if is_feeding(outer):
            sends = inner.f_code.co_name == "wait" and is_grpc(inner.f_code.co_filename)
            return variables_of(outer).get("request_iterator") if sends else None
    return None


def requests_read(frames: Sequence[FrameType]) -> Any:
    """gRPC's iterator of the requests of a call with a stream of replies, which a thread with these frames serves, or None."""
    for frame in frames:
        if frame.f_code.co_name == "_stream_response_in_pool" and is_grpc(frame.f_code.co_filename):
            requests = variables_of(frame).get("argument")
            return requests if hasattr(requests, "__next__") else None
    return None


def replies_being_sent(frames: Sequence[FrameType]) -> Any:
    """The iterator of a call's replies, one of which gRPC is sending in a thread with these frames; None if it is not."""
    if not any(one.f_code.co_name == "_send_response" and is_grpc(one.f_code.co_filename) for one in frames[:_FRAMES_IN_WRITE]):
        return None
    of_grpc = (variables_of(frame) for frame in frames if is_grpc(frame.f_code.co_filename))
    return next((found for names in of_grpc if (found := names.get("response_iterator")) is not None), None)


def call_fed_by(frames: Sequence[FrameType]) -> Any:
    """The ``grpc.aio`` call, as gRPC keeps it, whose requests a task with these frames sends; None if it does not."""
    outermost = frames[-1] if frames else None
    if (
        outermost is None
        or outermost.f_code.co_name != "_consume_request_iterator"
        or not is_grpc(outermost.f_code.co_filename)
    ):
        return None
    return variables_of(outermost).get("self")


def feeder_of(call: Any) -> Task | None:
    """The task that still feeds the request stream of a ``grpc.aio`` call, or None."""
    feeder = getattr(call, "_async_request_poller", None)
    return feeder if isinstance(feeder, asyncio.Task) and not feeder.done() else None
