"""Reads private parts of gRPC's channels, and of their methods."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from types import FrameType, MethodType
from typing import Any
from weakref import WeakSet

import grpc
import grpc.aio
from grpc import _channel, _utilities
from grpc.aio import _channel as _aio_channel

from stilltrue.runtime.compat.callables import bound_to
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.introspection.frames import variables_of

reply_of: Any = getattr(_channel, "_end_unary_response_blocking", None)
"""Turns the state of a finished unary call into its reply; see :func:`blocking_call_of`."""
_PLAIN_TARGETS = ("dns:///", "ipv4:", "ipv6:")
"""Prefixes of targets whose resolver returns only addresses: no routes and no timeouts."""
_AIO_METHODS = (
    _aio_channel.UnaryUnaryMultiCallable,
    _aio_channel.UnaryStreamMultiCallable,
    _aio_channel.StreamUnaryMultiCallable,
    _aio_channel.StreamStreamMultiCallable,
)
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_READY_FUTURE: Any = getattr(_utilities, "_ChannelReadyFuture", None)
_CHANNELS = (
    grpc.Channel,
    grpc.UnaryUnaryMultiCallable,
    grpc.UnaryStreamMultiCallable,
    grpc.StreamUnaryMultiCallable,
    grpc.StreamStreamMultiCallable,
    grpc.aio.Channel,
    grpc.aio.UnaryUnaryMultiCallable,
    grpc.aio.UnaryStreamMultiCallable,
    grpc.aio.StreamUnaryMultiCallable,
    grpc.aio.StreamStreamMultiCallable,
)
_GIVEN = (
    *("_inner", "_channel", "_interceptor", "_interceptors", "_request_serializer", "_response_deserializer"),
    *(f"_{kind}_interceptors" for kind in KINDS),
)
"""The attributes of gRPC's channels and methods, and of the agent's, with what they call or pass on to."""
_own_channels: WeakSet[Any] = WeakSet()
"""The agent's own channels."""


def target_of(channel: Any) -> str | None:
    """The target that gRPC's core dials for a gRPC channel; None if unknown or if the channel has interceptors."""
    if type(channel) not in (_channel.Channel, _aio_channel.Channel):
        return None
    if any(getattr(channel, f"_{kind}_interceptors", None) for kind in KINDS):
        return None
    target = getattr(getattr(channel, "_channel", None), "target", None)
    found = target() if callable(target) else target  # a plain value for grpc.aio since 1.85
    text = found.decode() if isinstance(found, bytes) else ""
    return text if text.startswith(_PLAIN_TARGETS) else None


def options_of(channel: Any) -> tuple[tuple[str, Any], ...] | None:
    """The options that a threaded channel was created with; None if unknown."""
    if type(channel) is not _channel.Channel:
        return None
    for held in gc.get_referents(getattr(channel, "_channel", None)):
        if type(held) is tuple and all(type(one) is tuple and len(one) == 2 for one in held):
            return held
    return None


def blocking_call_of(method: Any) -> Callable[..., tuple[Any, Any]] | None:
    """The function that makes a unary call (threads), waits, and returns its state and core call; None if unknown.

    ``reply_of(state, core, False, None)`` returns the reply or raises gRPC's error. ``with_call`` makes a call object, too.
    """
    known = type(method) is _channel._UnaryUnaryMultiCallable and reply_of is not None  # noqa: SLF001
    return getattr(method, "_blocking", None) if known else None


def only_iterates_metadata(method: Any) -> bool:
    """Whether a ``grpc.aio`` method only iterates over a call's metadata, which is so without interceptors."""
    return type(method) in _AIO_METHODS and not getattr(method, "_interceptors", True)


def is_channel(kind: type) -> bool:
    """Whether it is a class of channels, or of their methods."""
    return issubclass(kind, _CHANNELS)


def given_to_channel(channel: Any) -> list[Any]:
    """What a channel or one of its methods calls or passes on to: interceptors, and the channels and functions beneath."""
    found = [one for name in _GIVEN if (one := _attribute(channel, name)) is not None]
    return [*found, *bound_to(_attribute(channel, "_thunk"))]


def _attribute(thing: Any, name: str) -> Any:
    """An attribute, without what the object does for one that it does not have."""
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return None


def mark_own(channel: Any) -> None:
    """Remember that this is a channel of the agent's own."""
    _own_channels.add(channel)


def serves_own_channel(frame: FrameType) -> bool:
    """Whether this frame is gRPC's thread that handles the events of one of the agent's own channels."""
    code = frame.f_code
    if code.co_name != "channel_spin" or not is_grpc(code.co_filename):
        return False
    state = variables_of(frame).get("state")
    return state is not None and any(getattr(one, "_call_state", None) is state for one in list(_own_channels))


def connectivity_callbacks(frame: FrameType) -> list[Any]:
    """A channel's connectivity callbacks, if this frame is gRPC's thread that polls its connectivity.

    Instead of that of ``grpc.channel_ready_future()``, the future's done callbacks.
    """
    code = frame.f_code
    if code.co_name != "_poll_connectivity" or not is_grpc(code.co_filename):
        return []
    pairs = getattr(variables_of(frame).get("state"), "callbacks_and_connectivities", ())
    return [callback for one in list(pairs) for callback in _called_when_ready(one[0])]


def _called_when_ready(callback: Any) -> Iterable[Any]:
    future = callback.__self__ if type(callback) is MethodType else None
    return tuple(getattr(future, "_done_callbacks", None) or ()) if type(future) is _READY_FUTURE else (callback,)
