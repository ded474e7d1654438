"""The agent loaded only when it is needed: at the first channel or server that the program makes.

Until then the functions of gRPC that make them are replaced by small wrappers, which load the agent when one of them is called.
So a program that imports gRPC and never uses it, a helper process, or a parent that only forks pays nothing and never joins.
The wrappers stay: others (OpenTelemetry, say) may have put their own around them meanwhile.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from stilltrue.runtime.import_hook import after_import

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
    """One function of gRPC's and the wrapper in its place."""

    def __init__(self, original: Make) -> None:
        """``original`` is what gRPC has."""
        self.original = original
        self.make: Make | None = None
        """Called with the original and its arguments, once the agent is loaded."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self.make is None:
                _attach()
            make = self.make
            return original(*args, **kwargs) if make is None else make(original, *args, **kwargs)

        self.wrapper = wrapper


class _State:
    """What this process has deferred."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.prepared = False
        self.attach: Callable[[], object] | None = None
        self.deferred: dict[tuple[str, str], Deferred] = {}


_STATE = _State()


def attach_when_used(attach: Callable[[], object]) -> None:
    """Call ``attach`` once, right before the first channel or server is made. Only the first call of this function counts.

    gRPC may be imported already, later, or never.
    """
    with _STATE.lock:
        if _STATE.prepared:
            return
        _STATE.prepared, _STATE.attach = True, attach
    if "grpc" in sys.modules:
        _place()
    else:
        after_import(("grpc",), lambda _: _place())


def deferred(module: str, name: str) -> Deferred | None:
    """Our replacement of ``module.name``, if there is one. The caller attaches the agent, so nothing else does."""
    with _STATE.lock:
        _STATE.prepared, _STATE.attach = True, None
        return _STATE.deferred.get((module, name))


def _place() -> None:
    with _STATE.lock:
        for place in MAKERS if _STATE.attach is not None and not _STATE.deferred else ():
            module = sys.modules.get(place[0])
            original = getattr(module, place[1], None)
            if original is not None:
                _STATE.deferred[place] = known = Deferred(original)
                setattr(module, place[1], known.wrapper)


def _attach() -> None:
    with _STATE.lock:
        attach, _STATE.attach = _STATE.attach, None
        if attach is not None:
            attach()
