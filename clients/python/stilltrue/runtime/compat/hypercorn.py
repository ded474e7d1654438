"""Reads private parts of hypercorn: whether only a request's own code ends that request.

hypercorn runs the requests of a connection in one task group with the connection's reader. Nothing in that group ends a request
if:

1. It came by HTTP/1. The reader waits for the end of one request before it reads the next, and treats an error as the end of
   the connection, which it reports to the application. Over HTTP/2 a frame of another stream can make the reader fail, and then
   the group cancels all of its requests.
2. The server has neither ``max_requests`` nor a ``read_timeout``, after which it assumes that the caller is gone.
3. Only signals stop the server, and none has arrived: a stopping server cancels its requests after ``graceful_timeout``. An
   application that passes a ``shutdown_trigger`` may stop it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from stilltrue.runtime.compat.callables import code_of, module_of
from stilltrue.runtime.compat.tasks import await_chain, tasks_of
from stilltrue.runtime.introspection.frames import frame_of, variables_of

_SERVES = "hypercorn/asyncio/task_group.py", "_handle"
_RUNS = "hypercorn/asyncio/run.py", "worker_serve"
_OF_ONE_AT_A_TIME = ("1.0", "1.1")
_stopped_by_signals: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether only signals stop a server, by the server's ``WorkerContext``."""


def serves_alone(task: asyncio.Task[Any]) -> bool:
    """Whether ``task`` serves a hypercorn request that nothing else in its task group ends (all three conditions)."""
    served = _variables(task.get_coro(), *_SERVES)
    scope, config = served.get("scope"), served.get("config")
    if type(scope) is not dict or scope.get("http_version") not in _OF_ONE_AT_A_TIME:
        return False
    if getattr(config, "max_requests", 0) is not None or getattr(config, "read_timeout", 0) is not None:
        return False
    context = _context_of(served.get("send"))
    return context is not None and not context.terminated.is_set() and _is_stopped_by_signals_alone(context, task.get_loop())


def _variables(coroutine: Any, file: str, name: str) -> dict[str, Any]:
    """The variables of a coroutine of the given function; empty for any other."""
    code = code_of(coroutine)
    if code is None or code.co_name != name or not code.co_filename.replace("\\", "/").endswith(file):
        return {}
    frame = frame_of(coroutine)
    return {} if frame is None else variables_of(frame)


def _context_of(send: Any) -> Any:
    """The ``WorkerContext`` of the server that provided ``send``."""
    stream = getattr(send, "__self__", None)
    return getattr(stream, "context", None) if module_of(type(stream)).startswith("hypercorn.") else None


def _is_stopped_by_signals_alone(context: Any, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether hypercorn's own trigger stops the server. The trigger never changes."""
    if context not in _stopped_by_signals:
        for task in tasks_of(loop) or ():
            for one in await_chain(task.get_coro()):
                server = _variables(one, *_RUNS)
                if server.get("context") is context:
                    _stopped_by_signals[context] = _is_its_own(server.get("shutdown_trigger"), server.get("signal_event"))
    return _stopped_by_signals.get(context, False)


def _is_its_own(trigger: Any, signal_event: Any) -> bool:
    """Whether hypercorn made the ``shutdown_trigger``, from its signals or from its parent's event."""
    if type(trigger) is partial:
        return getattr(trigger.func, "__name__", "") == "check_multiprocess_shutdown_event"
    return signal_event is not None and getattr(trigger, "__self__", None) is signal_event
