"""Reads private parts of HTTP servers: whether they end their requests, and where threads accept connections."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.introspection.frames import variables_of

_SERVING = frozenset({"serve_forever", "handle_request"})
_SERVERS_FILE = f"{os.sep}socketserver.py"
_FUNCTIONS = (FunctionType, MethodType)
_ACCEPT = socket.socket.accept.__code__
_GUNICORN = "gunicorn.workers.base"
_THREADED = "gunicorn.workers.gthread"
_ASGI = "gunicorn.workers.gasgi"
_STANDS_BY = (("asyncio/tasks.py", "sleep"), ("aiohttp/web.py", "_run_app"))
_WORKER = re.compile(r"gunicorn|worker")


def waits_for_requests(thing: Any) -> bool:
    """Whether ``thing`` belongs to a uvicorn server that lets every request finish, even when it is stopped.

    uvicorn does so without ``timeout_graceful_shutdown``. The task group of a hypercorn connection counts as well: what ends
    its tasks
    is read from the tasks themselves (:func:`~stilltrue.runtime.compat.hypercorn.serves_alone`).
    """
    module = module_of(type(thing))
    if module == "hypercorn.asyncio.task_group":
        return True
    if not module.startswith("uvicorn."):
        return False
    config = getattr(thing, "__dict__", {}).get("config")
    return config is not None and getattr(config, "timeout_graceful_shutdown", 0) is None


def sleeps_until_stopped(frames: Sequence[FrameType]) -> bool:
    """Whether a task with these frames (innermost first) is aiohttp's, sleeping until its server is stopped."""
    codes = [frame.f_code for frame in frames[:2]]
    return len(codes) == len(_STANDS_BY) and all(
        code.co_name == name and code.co_filename.replace("\\", "/").endswith(file)
        for code, (file, name) in zip(codes, _STANDS_BY, strict=True)
    )


def closes_idle_connection(callback: Any) -> bool:
    """Whether this timer callback only closes an idle connection to aiohttp's server."""
    if type(callback) is not MethodType or module_of(type(callback.__self__)) != "aiohttp.web_protocol":
        return False
    return getattr(callback.__func__, "__name__", "") == "_process_keepalive"


def server_socket(frame: FrameType) -> socket.socket | None:
    """The listening socket of a standard library server that runs in this frame."""
    found = getattr(serving_in(frame), "__dict__", {}).get("socket")
    return found if isinstance(found, socket.socket) else None


def serving_in(frame: FrameType) -> Any:
    """The standard library server that runs in this frame, or None."""
    code = frame.f_code
    if code.co_name not in _SERVING or not code.co_filename.endswith(_SERVERS_FILE):
        return None
    return variables_of(frame).get("self")


def handlers_of_server(frame: FrameType) -> list[Any]:
    """The functions that a server of the standard library which runs in this frame may call for a request.

    Those of its handlers' class are bound to the server, which a handler has as its ``server``.
    """
    code = frame.f_code
    if code.co_name not in _SERVING or not code.co_filename.endswith(_SERVERS_FILE):
        return []
    server = variables_of(frame).get("self")
    own = getattr(server, "__dict__", {})
    found: list[Any] = [
        MethodType(one, server) for kind in (own.get("RequestHandlerClass"), type(server)) for one in methods_of_class(kind)
    ]
    for application in (own.get("app"), own.get("application")):
        views = getattr(application, "__dict__", {}).get("view_functions")
        found += list(views.values()) if type(views) is dict else []
        found += [one for one in (application,) if type(one) in _FUNCTIONS]
    return found


def methods_of_class(kind: Any) -> list[FunctionType]:
    """The functions of a class and its bases; none of what is not a class."""
    bases = type.__getattribute__(kind, "__mro__") if issubclass(type(kind), type) else ()
    return [one for base in bases for one in list(base.__dict__.values()) if type(one) is FunctionType]


def accepting_socket(frame: FrameType) -> socket.socket | None:
    """The socket on which this frame accepts connections."""
    found = variables_of(frame).get("self") if frame.f_code is _ACCEPT else None
    return found if isinstance(found, socket.socket) else None


def uvicorn_sockets(frame: FrameType) -> list[int]:
    """The descriptors of the listening sockets of the uvicorn server that runs in this frame."""
    if frame.f_code.co_name != "run":
        return []
    server = variables_of(frame).get("self")
    if module_of(type(server)) != "uvicorn.server":
        return []
    listening = getattr(server, "__dict__", {}).get("servers") or []
    return [one.fileno() for each in listening for one in getattr(each, "sockets", ())]


def call_before_sigterm_ends_uvicorn(close: Callable[[], None]) -> None:
    """Call ``close`` before uvicorn, if it serves here, ends the process by SIGTERM: no ``atexit`` function runs then.

    Once it has shut down, uvicorn restores the handlers that it found and raises the signal again. Where it found the default
    action, this leaves it a handler that calls ``close`` and then ends the process in the same way.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if module_of(type(server)) != "uvicorn.server":
        return

    def end(number: int, _frame: FrameType | None) -> None:
        try:
            close()
        finally:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    owners = gc.get_referrers(server)
    cells = [one for one in owners if type(one) is CellType]  # until Python 3.12 a comprehension's variables are cells
    for one in (*owners, *gc.get_referrers(*cells)):
        if type(one) is GeneratorType and one.gi_code.co_name == "capture_signals" and one.gi_frame is not None:
            handlers = variables_of(one.gi_frame).get("original_handlers")
            if type(handlers) is dict and handlers.get(signal.SIGTERM) is signal.SIG_DFL:
                handlers[signal.SIGTERM] = end


def gunicorn_worker(frames: Callable[[], Iterable[FrameType]]) -> Any:
    """The gunicorn worker whose method runs in these frames (only read under gunicorn), or None."""
    kind: Any = getattr(sys.modules.get(_GUNICORN), "Worker", None)
    for frame in () if kind is None else frames():
        worker = variables_of(frame).get("self") if _WORKER.search(frame.f_code.co_filename) else None
        if isinstance(worker, kind):
            return worker
    return None


def has_own_heartbeat(worker: Any) -> bool:
    """Whether a worker sends gunicorn heartbeats regardless of its requests, so that it is not killed for them.

    Its own thread only hands requests to others, or runs uvicorn's or gunicorn's loop. Those loops stop after ``max_requests``.
    """
    threaded = getattr(sys.modules.get(_THREADED), "ThreadWorker", None)
    if threaded is not None and isinstance(worker, threaded):
        return True
    of_uvicorn = module_of(type(getattr(worker, "__dict__", {}).get("config"))) == "uvicorn.config"
    return (of_uvicorn or module_of(type(worker)) == _ASGI) and not worker.cfg.max_requests


def daphne_timeout(send: Any) -> float | None:
    """Seconds after which daphne replies for an application that sends by ``send``; None if never, or not daphne."""
    server = getattr(send.func, "__self__", None) if type(send) is partial else None
    return getattr(server, "http_timeout", None) or None if module_of(type(server)) == "daphne.server" else None


def is_killed_when_blocked(frames: Iterable[FrameType]) -> bool:
    """Whether gunicorn kills the worker whose loop runs in these frames if the loop is blocked for long."""
    worker = gunicorn_worker(lambda: frames)
    return worker is not None and bool(worker.cfg.timeout)
