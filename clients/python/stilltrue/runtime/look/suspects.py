"""The objects by which a suspect's wait can be ended: its task, its call, its future."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import FrameType
from typing import Any

import grpc
import grpc.aio

from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import outgoing_in
from stilltrue.runtime.calls.stand_in import StandIn
from stilltrue.runtime.introspection.cut.client_interceptors import interceptor_tasks
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_ours
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.waits.call_stack import sleeps
from stilltrue.runtime.waits.streams.writes import request_written

_CALLS = (grpc.Call, grpc.Future, grpc.aio.Call)
_STREAMS = (grpc.aio.StreamStreamCall, grpc.aio.StreamUnaryCall)


def handles_of(place: Place) -> list[Any]:
    """The objects that end the wait at ``place`` when they are cancelled or set."""
    found: list[Any] = []
    for frame in place.frames:
        if is_ours(frame.f_code) or compat.is_future_code(frame.f_code):
            found += _calls_in(frame)
    if place.task is not None:
        found += _of_task(place)
    found += [state for one in found if issubclass(type(one), grpc.aio.Call) and (state := compat.state_of(one)) is not None]
    call = request_written(place.frames)
    handle = None if call is None or call.made.handle is None else call.made.handle()
    return found if handle is None else [*found, handle]


def contexts_of(place: Place) -> list[Any]:
    """The contexts of the call served at ``place``: gRPC's, and the application's wrappers of it."""
    if place.context is None:
        return []
    held = (one for frame in place.frames for one in variables_of(frame).values())
    ours = (one for one in held if issubclass(type(one), StandIn))
    return [place.context, *(one for one in ours if getattr(one, "_inner", None) is place.context)]


def streams_of(handles: Iterable[Any]) -> list[Any]:
    """The calls among some objects whose requests others may write."""
    return [one for one in handles if issubclass(type(one), _STREAMS)]


def owners_of(place: Place, places: Places) -> list[Any]:
    """The channels of the calls awaited at ``place``, and the servers of the call it serves, or of its thread.

    Closing or stopping one of them ends the wait.
    """
    found: list[Any] = []
    calls = [outgoing_in(variables_of(frame)) for frame in place.frames if is_ours(frame.f_code)]
    for call in (*calls, request_written(place.frames)):
        if call is not None and call.made.channel.dialled is not None:
            found += _with_beneath(call.made.channel.dialled())
    return [*found, *places.servers_of(place), *only_servers_of(place)]


def only_servers_of(place: Place) -> list[Any]:
    """The servers of the standard library that accept and serve on the thread at ``place``, with their listening sockets."""
    servers = (compat.serving_in(frame) for frame in place.frames)
    return [one for server in servers if server is not None for one in (server, attribute_of(server, "socket"))]


def _with_beneath(channel: Any) -> list[Any]:
    found = [] if channel is None or isinstance(channel, grpc.Channel | grpc.aio.Channel) else [channel]
    while isinstance(channel, grpc.Channel | grpc.aio.Channel):
        found.append(channel)
        channel = next(iter(compat.wrapped_objects(channel) or ()), None)
    return found


def _calls_in(frame: FrameType) -> list[Any]:
    """The call objects in a frame of ours and the gRPC calls inside them, or the future whose result is awaited."""
    names = variables_of(frame)
    found: list[Any] = []
    for name in ("self", "call"):
        thing = names.get(name)
        if issubclass(type(thing), Future) and not compat.is_running_future(thing):
            found.append(thing)
        if is_ours(frame.f_code):
            found += _beneath(thing)
        elif issubclass(type(thing), _CALLS):
            found.append(thing)
    return found


def _beneath(thing: Any) -> list[Any]:
    """The call objects that an object of ours is or wraps."""
    source, owner = attribute_of(thing, "source"), attribute_of(thing, "owner")
    inner = getattr(thing, "_inner", None)
    things = [thing, inner]
    if issubclass(type(thing), StandIn) and source is not UNKNOWN:  # items of a reply stream
        inner = source
        things = [inner, owner()]
    return [one for one in (*things, *compat.returned_by_interceptors(inner)) if issubclass(type(one), _CALLS)]


def _of_task(place: Place) -> list[Any]:
    task = place.task
    found: list[Any] = [task]
    future = blocking_future(task) if task is not None else None
    # the end of a sleep ends no wait: the task asks again and again
    if future is not None and not sleeps(place.frames) and (not compat.is_task(future) or compat.is_grpc_task(future)):
        found.append(future)
    interceptors = interceptor_tasks(future)
    if interceptors is not None:
        found += [*interceptors.tasks, *interceptors.handles]
    for callback, _ in compat.callbacks_of(task):
        found += [one for one in compat.bound_to(callback) if compat.is_gathering(one)]
    return found
