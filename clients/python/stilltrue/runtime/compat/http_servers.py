"""Reads private parts of HTTP servers: whether one ends the requests that it serves, and where a thread accepts connections."""

from __future__ import annotations

import os
import socket
from types import FrameType
from typing import Any

from stilltrue.runtime.compat.references import module_of
from stilltrue.runtime.introspection.frames import variables_of

_SERVING = frozenset({"serve_forever", "handle_request"})
_SERVERS_FILE = f"{os.sep}socketserver.py"
_ACCEPT = socket.socket.accept.__code__


def waits_for_requests(thing: Any) -> bool:
    """Whether an object belongs to an uvicorn server that lets every request end by itself, also when it is stopped.

    It does so unless it was given ``timeout_graceful_shutdown``.
    """
    if not module_of(type(thing)).startswith("uvicorn."):
        return False
    config = getattr(thing, "__dict__", {}).get("config")
    return config is not None and getattr(config, "timeout_graceful_shutdown", 0) is None


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
