"""Reads private parts of gRPC: calls, contexts, servers and channels."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType
from typing import Any
from weakref import WeakSet, ref

import grpc
import grpc.aio
from grpc import _channel
from grpc._cython import cygrpc
from grpc.aio import _call as _aio_call
from grpc.aio import _channel as _aio_channel
from grpc.aio import _interceptor

from stilltrue.runtime.compat.callables import Task, closure_of, code_behind, module_of
from stilltrue.runtime.compat.tasks import REMOVE_FROM_SET, is_task
from stilltrue.runtime.introspection.frames import frame_of, variables_of

DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC reports a deadline this far off, or farther, for calls without one."""
_NEVER = 10.0**12
"""A deadline (epoch) beyond this means that the call has none."""
_EVENT = getattr(cygrpc, "RequestCallEvent", None)
"""The event by which a threaded server receives a call."""
_GRPC = tuple(
    str(Path(grpc.__file__).parent.with_name(name)) + os.sep
    for name in ("grpc", "grpc_admin", "grpc_channelz", "grpc_csds", "grpc_health", "grpc_reflection", "grpc_status")
)
"""The folders of gRPC's own packages; others whose names begin so (``grpc_clients``) are the application's."""
_STATE: Any = getattr(_channel, "_RPCState", object())
_AIO_STATE: Any = getattr(cygrpc, "_AioCall", object())
_SPINS, _OBJECTS_MAX = "channel_spin", 10_000
"""The function in which gRPC's thread passes on the events of a channel; how many objects behind a channel are read."""
_SERVER_DEPTH_MAX = 6
_FRAMES_IN_WRITE = 5
"""Number of innermost frames of a thread in which gRPC's function that writes an item is found."""
_AIO_SERVER, _AIO_CALL = "AioServer", "RPCState"
_STANDS_BEFORE = (
    ((grpc.Channel, grpc.aio.Channel), ("_inner", "_channel")),
    ((grpc.Server, grpc.aio.Server), ("_state", "_server")),
    ((grpc.aio.Call,), ("_inner",)),
)
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
_WRITTEN_TO = (_aio_call.StreamUnaryCall, _aio_call.StreamStreamCall)
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_GRPC_COMPILED = "grpc/_cython/"
_GRPC_COROUTINES = ("AioServer.", "AioChannel.", "_AioCall.", "_handle_", "_request_call", "_server_", "_schedule_rpc_coro")


def is_grpc(filename: str) -> bool:
    """Whether a file belongs to gRPC."""
    return filename.startswith(_GRPC) or _GRPC_COMPILED in filename


def is_grpc_task(task: Task) -> bool:
    """Whether gRPC created ``task`` for a call or a server."""
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    if code is None:  # compiled; no file name before grpcio 1.66
        return type(coroutine) is not CoroutineType and str(getattr(coroutine, "__qualname__", "")).startswith(_GRPC_COROUTINES)
    return is_grpc(str(getattr(code, "co_filename", "")))


def runs_interceptors(future: Any) -> bool:
    """Whether ``future`` is the task that runs the client interceptors of a ``grpc.aio`` call."""
    code = getattr(future.get_coro(), "cr_code", None) if is_task(future) else None
    return code is not None and code.co_filename == _interceptor.__file__


def returned_by_interceptors(call: Any) -> tuple[Any, ...]:
    """The task that runs a ``grpc.aio`` call's interceptors, and the call they returned, if they have."""
    task: Any = getattr(call, "_interceptors_task", None)
    if not is_task(task):
        return ()
    return (task,) if not task.done() or task.cancelled() or task.exception() is not None else (task, task.result())


def target_of(channel: Any) -> str | None:
    """The target that gRPC's core dials for a gRPC channel; None if unknown or if the channel has interceptors."""
    if type(channel) not in (_channel.Channel, _aio_channel.Channel):
        return None
    if any(getattr(channel, f"_{kind}_interceptors", None) for kind in _KINDS):
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
    frame = frame_of(task.get_coro())
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


def seconds_left(submitted: Iterable[Any]) -> float | None:
    """Time left for the call for which gRPC submitted these arguments to a pool; inf without a deadline; None if unknown."""
    for one in submitted:
        if type(one) is _EVENT:
            deadline: float = one.call_details.deadline
            if deadline > _NEVER:
                return inf
            left = deadline - time.time()
            return left if left < DEADLINE_SECONDS_MAX else inf
    return None


_own_channels: WeakSet[Any] = WeakSet()
"""The agent's own channels."""


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


def connectivity_callbacks(frame: FrameType) -> list[Any]:
    """A channel's connectivity callbacks, if this frame is gRPC's thread that polls its connectivity."""
    code = frame.f_code
    if code.co_name != "_poll_connectivity" or not is_grpc(code.co_filename):
        return []
    pairs = getattr(variables_of(frame).get("state"), "callbacks_and_connectivities", ())
    return [one[0] for one in list(pairs)]


def state_in(frame: FrameType) -> Any:
    """The state of a call (threads) in the gRPC frame that waits for it or feeds it."""
    code = frame.f_code
    if not is_grpc(code.co_filename):
        return None
    names = variables_of(frame)
    state = names.get("state")
    return state if state is not None else getattr(names.get("self"), "_state", None)


def feeder_of(call: Any) -> Task | None:
    """The task that still feeds the request stream of a ``grpc.aio`` call, or None."""
    feeder = getattr(call, "_async_request_poller", None)
    return feeder if isinstance(feeder, asyncio.Task) and not feeder.done() else None


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
    name = str(getattr(task.get_coro(), "__qualname__", ""))
    return task in own or name == "_AioCall._handle_status_once_received"


def is_serving(frame: FrameType) -> bool:
    """Whether this frame is gRPC's server thread."""
    code = frame.f_code
    return code.co_name == "_serve" and is_grpc(code.co_filename)


def is_stopping(server: Any) -> bool:
    """Whether a server, as gRPC keeps it, was stopped and accepts no calls; its grace period may still run.

    On an event loop this shows in its shutdown lock, and in the end of the task that accepts calls.
    """
    if type(server).__name__ == _AIO_SERVER:
        return any(map(_shows_stop, gc.get_referents(server)))
    return getattr(getattr(server, "stage", None), "value", "started") != "started"


def is_stopping_server(server: Any) -> bool:
    """As :func:`is_stopping`, for the application's server object."""
    inner = {"grpc._server": "_state", "grpc.aio._server": "_server"}.get(module_of(type(server)))
    return inner is not None and is_stopping(getattr(server, inner, None))


def _shows_stop(part: Any) -> bool:
    return bool(part.done()) if is_task(part) else type(part) is asyncio.Lock and part.locked()


def stop_check_of(server: Any) -> Callable[[], bool]:
    """A function that returns :func:`is_stopping` of a server without keeping the server alive."""
    if server is None:
        return bool
    if type(server).__name__ == _AIO_SERVER:
        parts = [ref(one) for one in gc.get_referents(server) if is_task(one) or type(one) is asyncio.Lock]
        return lambda: any((one := weak()) is None or _shows_stop(one) for weak in parts)
    state = ref(server)
    return lambda: (found := state()) is not None and is_stopping(found)


def methods_of_server(server: Any) -> list[tuple[str, Any]]:
    """The methods of a server, as gRPC keeps it, and those of its interceptors: names and application functions."""
    if type(server).__name__ == _AIO_SERVER:
        held = gc.get_referents(server)
        interceptors = [one for part in held if type(part) is tuple for one in part]
        generic = [one for part in held if type(part) is list for one in part if isinstance(one, grpc.GenericRpcHandler)]
        registered = [part for part in held if type(part) is dict]
    else:
        interceptors = list(getattr(getattr(server, "interceptor_pipeline", None), "interceptors", ()))
        generic = list(getattr(server, "generic_handlers", ()))
        registered = [getattr(server, "registered_method_handlers", {})]
    kinds = (grpc.ServerInterceptor, grpc.aio.ServerInterceptor)
    found: list[tuple[str, Any]] = [
        (f"any method ({type(one).__qualname__})", one.intercept_service) for one in interceptors if isinstance(one, kinds)
    ]
    for one in generic:
        methods = getattr(one, "_method_handlers", None)
        if type(methods) is dict:
            registered.append(methods)
        else:
            found.append((type(one).__qualname__, one.service))
    for methods in registered:
        for name, handler in list(methods.items()):
            served = (getattr(handler, kind, None) for kind in _KINDS)
            found += ((str(name), one) for one in served if one is not None)
    return found


def server_calls(server_state: Any) -> set[int]:
    """The identities of a server's calls, as their contexts keep them."""
    return {id(state) for state in list(getattr(server_state, "rpc_states", ()))}


def aio_server_of(task: Task) -> Any:
    """The ``grpc.aio`` core server whose call ``task`` serves, or None."""
    return _held_by_task(task, _AIO_SERVER)


def aio_seconds_left(task: Task) -> float | None:
    """The seconds after which gRPC ends the call that ``task`` serves, before its handler has a context; None: never.

    Raises LookupError, TypeError or AttributeError if that cannot be read.
    """
    call = _held_by_task(task, _AIO_CALL)
    if call is None:
        raise LookupError(_AIO_CALL)
    context = cygrpc._ServicerContext(call, None, None, task.get_loop())  # noqa: SLF001 - as gRPC does for the handler
    left: float | None = context.time_remaining()
    return None if left is None or left > DEADLINE_SECONDS_MAX else left


def _held_by_task(task: Task, name: str) -> Any:
    """The compiled object of gRPC with this class's name that a task's coroutine leads to; None if there is none."""
    level: list[Any] = [task.get_coro()]
    for _ in range(_SERVER_DEPTH_MAX):
        level = [one for holder in level for one in gc.get_referents(holder)]
        for one in level:
            if type(one).__name__ == name:
                return one
        level = [one for one in level if module_of(type(one)).startswith(("grpc.", "_cython"))]
    return None


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
