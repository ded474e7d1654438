"""Defers loading the agent until the program makes its first channel or server.

Small wrappers replace gRPC's functions that make them, and load the agent on the first call. So a program that imports gRPC
but never uses it, a helper process, or a parent that only forks pays nothing and never joins. The wrappers stay in place:
other libraries (OpenTelemetry, say) may have wrapped them meanwhile.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from stilltrue.runtime.joining.import_hook import after_import

MAKERS = (
    ("grpc", "insecure_channel"),
    ("grpc", "secure_channel"),
    ("grpc", "server"),
    ("grpc.aio", "insecure_channel"),
    ("grpc.aio", "secure_channel"),
    ("grpc.aio", "server"),
)
"""The functions that make channels and servers: module and name."""
Make = Callable[..., Any]


class Deferred:
    """One of gRPC's functions and the wrapper that replaces it."""

    def __init__(self, original: Make) -> None:
        """``original`` is gRPC's function."""
        self.original = original
        self.make: Make | None = None
        """Called with the original and its arguments once the agent is loaded."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self.make is None:
                _attach()
            make = self.make
            return original(*args, **kwargs) if make is None else make(original, *args, **kwargs)

        self.wrapper = wrapper


class _State:
    """The deferred functions of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.prepared = False
        self.attach: Callable[[], object] | None = None
        self.deferred: dict[tuple[str, str], Deferred] = {}


_STATE = _State()


def attach_when_used(attach: Callable[[], object]) -> None:
    """Call ``attach`` once, right before the first channel or server is made. Later calls of this function have no effect.

    gRPC may already be imported, or be imported later, or never.
    """
    with _STATE.lock:
        if _STATE.prepared:
            return
        _STATE.prepared, _STATE.attach = True, attach
    if "grpc" in sys.modules:
        _install()
    else:
        after_import(("grpc",), lambda _: _install())


def deferred(module: str, name: str) -> Deferred | None:
    """Our replacement of ``module.name``, or None. The caller attaches the agent itself, so nothing else will."""
    with _STATE.lock:
        _STATE.prepared, _STATE.attach = True, None
        return _STATE.deferred.get((module, name))


def _install() -> None:
    with _STATE.lock:
        for maker in MAKERS if _STATE.attach is not None and not _STATE.deferred else ():
            module = sys.modules.get(maker[0])
            original = getattr(module, maker[1], None)
            if original is not None:
                _STATE.deferred[maker] = replaced = Deferred(original)
                setattr(module, maker[1], replaced.wrapper)


def _attach() -> None:
    with _STATE.lock:
        attach, _STATE.attach = _STATE.attach, None
        if attach is not None:
            attach()
