"""Reads private parts of HTTP servers: whether one ends the requests that it serves, and where a thread accepts connections."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType, MethodType
from typing import Any

from stilltrue.runtime.compat.references import module_of
from stilltrue.runtime.introspection.frames import variables_of

_SERVING = frozenset({"serve_forever", "handle_request"})
_SERVERS_FILE = f"{os.sep}socketserver.py"
_ACCEPT = socket.socket.accept.__code__
_GUNICORN = "gunicorn.workers.base"
_THREADED = "gunicorn.workers.gthread"
_ASGI = "gunicorn.workers.gasgi"
_STANDS_BY = (("asyncio/tasks.py", "sleep"), ("aiohttp/web.py", "_run_app"))
_WORKER = re.compile(r"gunicorn|worker")


def waits_for_requests(thing: Any) -> bool:
    """Whether an object belongs to an uvicorn server that lets every request end by itself, also when it is stopped.

    It does so unless it was given ``timeout_graceful_shutdown``. The group of tasks that hypercorn has for a connection is such
    an object, too: who ends these is known from the tasks (:func:`~stilltrue.runtime.compat.hypercorn.serves_alone`).
    """
    module = module_of(type(thing))
    if module == "hypercorn.asyncio.task_group":
        return True
    if not module.startswith("uvicorn."):
        return False
    config = getattr(thing, "__dict__", {}).get("config")
    return config is not None and getattr(config, "timeout_graceful_shutdown", 0) is None


def is_for_operator(frames: Sequence[FrameType]) -> bool:
    """Whether a task with these frames (innermost first) sleeps until somebody stops the server that it runs: aiohttp's."""
    codes = [frame.f_code for frame in frames[:2]]
    return len(codes) == len(_STANDS_BY) and all(
        code.co_name == name and code.co_filename.replace("\\", "/").endswith(file)
        for code, (file, name) in zip(codes, _STANDS_BY, strict=True)
    )


def closes_idle_connection(callback: Any) -> bool:
    """Whether a timer with this callback only closes a connection to aiohttp's server if that is idle."""
    if type(callback) is not MethodType or module_of(type(callback.__self__)) != "aiohttp.web_protocol":
        return False
    return getattr(callback.__func__, "__name__", "") == "_process_keepalive"


def acceptor_in(frame: FrameType) -> socket.socket | None:
    """The socket from which a server of the standard library takes its connections, if a thread serves them here."""
    code = frame.f_code
    if code.co_name not in _SERVING or not code.co_filename.endswith(_SERVERS_FILE):
        return None
    found = getattr(variables_of(frame).get("self"), "__dict__", {}).get("socket")
    return found if isinstance(found, socket.socket) else None


def accepted_from(frame: FrameType) -> socket.socket | None:
    """The socket at which a thread waits for connections here."""
    found = variables_of(frame).get("self") if frame.f_code is _ACCEPT else None
    return found if isinstance(found, socket.socket) else None


def uvicorn_in(frame: FrameType) -> list[int]:
    """The descriptors of the sockets at which an uvicorn server listens that runs here."""
    if frame.f_code.co_name != "run":
        return []
    server = variables_of(frame).get("self")
    if module_of(type(server)) != "uvicorn.server":
        return []
    listening = getattr(server, "__dict__", {}).get("servers") or []
    return [one.fileno() for each in listening for one in getattr(each, "sockets", ())]


def gunicorns_worker(frames: Callable[[], Iterable[FrameType]]) -> Any:
    """The worker of gunicorn, one of whose methods runs in these frames (read only under gunicorn); None: none does."""
    kind: Any = getattr(sys.modules.get(_GUNICORN), "Worker", None)
    for frame in () if kind is None else frames():
        worker = variables_of(frame).get("self") if _WORKER.search(frame.f_code.co_filename) else None
        if isinstance(worker, kind):
            return worker
    return None


def stays_alive(worker: Any) -> bool:
    """Whether a worker tells gunicorn that it is alive whatever its requests wait for, and is not killed for them.

    Its own thread only hands them to others, or runs uvicorn's loop or gunicorn's own, which stop after ``max_requests``.
    """
    threaded = getattr(sys.modules.get(_THREADED), "ThreadWorker", None)
    if threaded is not None and isinstance(worker, threaded):
        return True
    of_uvicorn = module_of(type(getattr(worker, "__dict__", {}).get("config"))) == "uvicorn.config"
    return (of_uvicorn or module_of(type(worker)) == _ASGI) and not worker.cfg.max_requests


def daphnes_timeout(send: Any) -> float | None:
    """After how many seconds daphne answers for an application that sends its reply by ``send``; None: never, or not daphne."""
    server = getattr(send.func, "__self__", None) if type(send) is partial else None
    return getattr(server, "http_timeout", None) or None if module_of(type(server)) == "daphne.server" else None


def is_killed_when_blocked(frames: Iterable[FrameType]) -> bool:
    """Whether gunicorn kills the worker whose loop runs in these frames when that is blocked for long."""
    worker = gunicorns_worker(lambda: frames)
    return worker is not None and bool(worker.cfg.timeout)
