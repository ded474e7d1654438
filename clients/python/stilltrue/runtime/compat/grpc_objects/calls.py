"""Reads private parts of calls and contexts: their states, callbacks and interceptors."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import AsyncGeneratorType, FrameType, FunctionType
from typing import Any
from weakref import ref

import grpc
import grpc.aio
from grpc import _channel
from grpc._cython import cygrpc
from grpc.aio import _call as _aio_call
from grpc.aio import _interceptor

from stilltrue.runtime.compat.callables import Task, closure_of, code_behind, coroutine_of, module_of
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.compat.tasks import REMOVE_FROM_SET, is_task
from stilltrue.runtime.introspection.frames import frame_of, variables_of

_STATE: Any = getattr(_channel, "_RPCState", object())
_AIO_STATE: Any = getattr(cygrpc, "_AioCall", object())
_SPINS, _OBJECTS_MAX = "channel_spin", 10_000
"""The function in which gRPC's thread passes on the events of a channel; how many objects behind a channel are read."""
_STANDS_BEFORE = (
    ((grpc.Channel, grpc.aio.Channel), ("_inner", "_channel")),
    ((grpc.Server, grpc.aio.Server), ("_state", "_server")),
    ((grpc.aio.Call,), ("_inner",)),
)
_WRITTEN_TO = (_aio_call.StreamUnaryCall, _aio_call.StreamStreamCall)


def runs_interceptors(future: Any) -> bool:
    """Whether ``future`` is the task that runs the client interceptors of a ``grpc.aio`` call."""
    code = getattr(coroutine_of(future), "cr_code", None) if is_task(future) else None
    return code is not None and code.co_filename == _interceptor.__file__


def returned_by_interceptors(call: Any) -> tuple[Any, ...]:
    """The task that runs a ``grpc.aio`` call's interceptors, and the call they returned, if they have."""
    task: Any = getattr(call, "_interceptors_task", None)
    if not is_task(task):
        return ()
    return (task,) if not task.done() or task.cancelled() or task.exception() is not None else (task, task.result())


def end_callbacks(call: Any) -> list[Any] | None:
    """The callbacks that a call object, its state, or a handler's context runs at its end; None if unknown."""
    state = state_of(call)
    if type(state) is _AIO_STATE:
        return [one for part in gc.get_referents(state) if type(part) is list for one in part if _is_not_grpcs(one)]
    return None if state is None or not hasattr(state, "callbacks") else list(state.callbacks or ())


def _is_not_grpcs(thing: Any) -> bool:
    """Whether it is a callback, other than gRPC's own to an intercepted call."""
    code, _, _ = code_behind(thing) if callable(thing) else (None, {}, None)
    return callable(thing) and (code is None or not is_grpc(code.co_filename))


def state_of(call: Any) -> Any:
    """gRPC's state of a call object or of a handler's context (threads), or a state itself; None if unknown."""
    if type(call) in (_STATE, _AIO_STATE):
        return call
    state = getattr(call, "_state", None)
    return getattr(call, "_cython_call", None) if state is None else state


def state_of_task(task: Task) -> Any:
    """gRPC's state of the ``grpc.aio`` call that a task of gRPC's makes; None for any other task."""
    frame = frame_of(coroutine_of(task))
    call = variables_of(frame).get("self") if frame is not None and is_grpc(frame.f_code.co_filename) else None
    return None if call is None else getattr(call, "_cython_call", None)


def states_of_calls(frames: Iterable[FrameType]) -> list[Any]:
    """gRPC's states of the open calls whose events a thread with these frames passes on, whoever has made them."""
    spins = next((one for one in frames if one.f_code.co_name == _SPINS and is_grpc(one.f_code.co_filename)), None)
    channel = None if spins is None else getattr(variables_of(spins).get("state"), "channel", None)
    found: dict[int, Any] = {}
    todo, seen = [channel], set[int]()
    while todo and len(seen) < _OBJECTS_MAX:
        for one in gc.get_referents(todo.pop()):
            if type(one) is FunctionType and type(state := closure_of(one).get("state")) is _STATE:
                found[id(state)] = state
            elif id(one) not in seen and (type(one) in (dict, set) or module_of(type(one)) == cygrpc.__name__):
                seen.add(id(one))
                todo.append(one)
    return list(found.values())


def state_in(frame: FrameType) -> Any:
    """The state of a call (threads) in the gRPC frame that waits for it or feeds it."""
    code = frame.f_code
    if not is_grpc(code.co_filename):
        return None
    names = variables_of(frame)
    state = names.get("state")
    return state if state is not None else getattr(names.get("self"), "_state", None)


def request_metadata_of(call: Any) -> Iterable[tuple[Any, Any]]:
    """The pairs of metadata with which a ``grpc.aio`` call, as gRPC keeps it, was made; empty if they cannot be read."""
    metadata = getattr(call, "_metadata", None) if isinstance(call, _aio_call.Call) else None
    if type(metadata) is grpc.aio.Metadata:
        return tuple(metadata)
    return tuple(tuple.__iter__(metadata)) if isinstance(metadata, tuple) else ()


def is_written_to(call: Any) -> bool:
    """Whether the requests of a ``grpc.aio`` call without interceptors are sent by ``write()``, not from an iterator."""
    return type(call) in _WRITTEN_TO and getattr(call, "_async_request_poller", call) is None


def is_call_registry_ref(weak: Any) -> bool:
    """Whether a weak reference belongs to a channel's set of its open calls, or to a loop's set of its async generators.

    It must be to gRPC's own object of a ``grpc.aio`` call, or to gRPC's generator of the replies. The application has the
    agent's objects instead, so no other set has these.
    """
    remove = weak.__callback__ if type(weak) is ref else None
    if type(remove) is not FunctionType or remove.__code__ is not REMOVE_FROM_SET:
        return False
    thing = weak()
    if type(thing) is AsyncGeneratorType:
        return is_grpc(thing.ag_code.co_filename)
    return type(thing) in _WRITTEN_TO


def serves_call(task: Task, call: Any) -> bool:
    """Whether this is one of the tasks in which gRPC starts ``call``, and waits for its only reply or its status."""
    own = (getattr(call, "_initializer", None), getattr(call, "_call_response", None))
    name = str(getattr(coroutine_of(task), "__qualname__", ""))
    return task in own or name == "_AioCall._handle_status_once_received"


def wrapped_objects(thing: Any) -> tuple[Any, ...] | None:
    """The objects that a channel, server or call of an event loop (ours or gRPC's) wraps and ends; None for other objects."""
    kind = type(thing)
    if not module_of(kind).startswith(("grpc.", "stilltrue.")):
        return None
    for kinds, names in _STANDS_BEFORE:
        if issubclass(kind, kinds):
            found = (getattr(thing, name, None) for name in names)
            return tuple(one for one in found if one is not None)
    return None
