"""Reads private parts of gRPC's servers: their methods, their stop, and the deadlines of the calls they serve."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from math import inf
from types import FrameType
from typing import Any
from weakref import ref

import grpc
import grpc.aio
from grpc._cython import cygrpc

from stilltrue.runtime.compat.callables import Task, coroutine_of, module_of
from stilltrue.runtime.compat.grpc_objects.channels import KINDS
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc
from stilltrue.runtime.compat.tasks import is_task

DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC reports a deadline this far off, or farther, for calls without one."""
_NEVER = 10.0**12
"""A deadline (epoch) beyond this means that the call has none."""
_EVENT = getattr(cygrpc, "RequestCallEvent", None)
"""The event by which a threaded server receives a call."""
_SERVER_DEPTH_MAX = 6
_AIO_SERVER, _AIO_CALL = "AioServer", "RPCState"


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
            served = (getattr(handler, kind, None) for kind in KINDS)
            found += ((str(name), one) for one in served if one is not None)
    return found


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
