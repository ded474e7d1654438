"""Reads private parts of gRPC's servers: their methods, their stop, and the deadlines of the calls they serve."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from math import inf
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ref

import grpc
import grpc.aio
from grpc import _server
from grpc._cython import cygrpc
from grpc.aio import _server as _aio_server

from stilltrue.runtime.compat.callables import Task, coroutine_of, module_of
from stilltrue.runtime.compat.grpc_objects.channels import KINDS
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.compat.tasks import is_task
from stilltrue.runtime.introspection.frames import variables_of

DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC reports a deadline this far off, or farther, for calls without one."""
_NEVER = 10.0**12
"""A deadline (epoch) beyond this means that the call has none."""
_EVENT = getattr(cygrpc, "RequestCallEvent", None)
"""The event by which a threaded server receives a call."""
_SERVER_DEPTH_MAX = 6
_AWAITS_GRACE = next((one for one in _server._stop.__code__.co_consts if isinstance(one, CodeType)), None)  # noqa: SLF001
"""The function in which a threaded server waits for the end of its grace period."""
AIO_STOP: CodeType = _aio_server.Server.stop.__code__
_AIO_SERVER, _AIO_CALL, _AIO_RESOLVER = "AioServer", "RPCState", "_MethodResolver"
_INNER_SERVERS = {"grpc._server": "_state", "grpc.aio._server": "_server"}
"""By module of the application's server object: the attribute with the server as gRPC keeps it."""


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


def takes_requests(server: Any, loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether a server may begin to serve a request: one to come or, if it is being stopped, one that is queued in its pool."""
    if not is_stopping(server):
        return True
    if type(server).__name__ == _AIO_SERVER:
        own = next((one for one in gc.get_referents(server) if isinstance(one, Executor)), None)
        pool = getattr(loop, "_default_executor", None) if own is None else own
        return pool is not None and _has_items(pool)
    return _has_items(getattr(server, "thread_pool", None))


def _has_items(pool: Any) -> bool:
    queue = getattr(pool, "_work_queue", None)
    return queue is None or not queue.empty()


def is_stopping_server(server: Any) -> bool:
    """As :func:`is_stopping`, for the application's server object."""
    inner = _INNER_SERVERS.get(module_of(type(server)))
    return inner is not None and is_stopping(getattr(server, inner, None))


def is_running_server(thing: Any) -> bool:
    """Whether it is a server object of the application's, started and not asked to stop."""
    inner = _INNER_SERVERS.get(module_of(type(thing)))
    return inner is not None and hasattr(thing, inner) and not is_stopping(getattr(thing, inner))


def _shows_stop(part: Any) -> bool:
    return bool(part.done()) if is_task(part) else type(part) is asyncio.Lock and part.locked()


def grace_period_in(frame: FrameType, server: Any) -> float | None:
    """The grace period in seconds for whose end this frame of gRPC's own waits, if it is that of a threaded ``server``."""
    names = variables_of(frame) if frame.f_code is _AWAITS_GRACE else {}
    return float(names["grace"]) if names.get("state") is server and "grace" in names else None


def shutdown_future_of(server: Any) -> Any:
    """The future that completes when a ``grpc.aio`` core server has stopped; None if it has, or for other servers."""
    held = gc.get_referents(server) if type(server).__name__ == _AIO_SERVER else []
    return next((one for one in held if issubclass(type(one), asyncio.Future) and not is_task(one) and not one.done()), None)


def is_told_of_end(server: Any, event: Any) -> bool:
    """Whether a threaded server, as gRPC keeps it, sets this event when it has stopped."""
    return any(one is event for one in list(getattr(server, "shutdown_events", ())))


def server_in(frame: FrameType) -> Any:
    """The threaded server, as gRPC keeps it, that this frame of gRPC's server thread serves; None for other frames."""
    return variables_of(frame).get("state") if is_serving(frame) else None


def serves_call_of(frame: FrameType, server: Any) -> bool:
    """Whether this frame of gRPC's own runs the handler of a call of a threaded ``server``."""
    if not is_grpc(frame.f_code.co_filename):
        return False
    state = variables_of(frame).get("state")
    return state is not None and id(state) in server_calls(server)


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
            served = (getattr(handler, kind, None) for kind in KINDS)
            found += ((str(name), one) for one in served if one is not None)
            converters = (getattr(handler, kind, None) for kind in ("request_deserializer", "response_serializer"))
            found += ((str(name), one) for one in converters if isinstance(one, FunctionType | MethodType))
    return found


def is_aio_server(thing: Any) -> bool:
    """Whether it is a server of ``grpc.aio``, as gRPC's core keeps it."""
    return type(thing).__name__ == _AIO_SERVER and type(thing).__module__ == cygrpc.__name__


def keeps_methods_of_aio_server(thing: Any) -> bool:
    """Whether it is a server of ``grpc.aio``, or the object by which that finds a method."""
    return type(thing).__name__ in (_AIO_SERVER, _AIO_RESOLVER) and type(thing).__module__ == cygrpc.__name__


def server_calls(server_state: Any) -> set[int]:
    """The identities of a server's calls, as their contexts keep them."""
    return {id(state) for state in list(getattr(server_state, "rpc_states", ()))}


def aio_server_of(task: Task) -> Any:
    """The ``grpc.aio`` core server whose call ``task`` serves, or None."""
    return _held_by_task(task, _AIO_SERVER)


def aio_executor_of(server: Any, loop: asyncio.AbstractEventLoop) -> Executor | None:
    """The executor on which a ``grpc.aio`` core server runs handlers that are not coroutines; None if it is unknown.

    Without one of its own that is the loop's default executor: made here if need be, as asyncio itself would right after.
    """
    own = next((one for one in gc.get_referents(server) if isinstance(one, Executor)), None)
    if own is not None or not isinstance(loop, asyncio.BaseEventLoop):
        return own
    default: Executor | None = loop._default_executor  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public API
    if default is None:
        default = ThreadPoolExecutor(thread_name_prefix="asyncio")
        loop.set_default_executor(default)
    return default


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
    level: list[Any] = [coroutine_of(task)]
    for _ in range(_SERVER_DEPTH_MAX):
        level = [one for holder in level for one in gc.get_referents(holder)]
        for one in level:
            if type(one).__name__ == name:
                return one
        level = [one for one in level if module_of(type(one)).startswith(("grpc.", "_cython"))]
    return None
