"""Detects greenlets that replace the process's threads: gRPC, which the agent uses, would block all of them at once."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable

_LOGGER = logging.getLogger("stilltrue")
_PATCHED = (
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
)
_COOPERATING = "grpc.experimental.gevent"


def would_be_held_up() -> bool:
    """Whether the agent would block the whole process; logs a warning with advice, once."""
    library = next((library for library, *patch in _PATCHED if _is_patched(*patch)), "")
    if not library or (library == "gevent" and _COOPERATING in sys.modules):
        return False
    _warn(library)
    return True


@functools.cache
def _warn(library: str) -> None:
    advice = "; call grpc.experimental.gevent.init_gevent() first" if library == "gevent" else ""
    text = "not joined: %s has replaced the threads, and gRPC would block all of them; this process is not watched%s"
    _LOGGER.warning(text, library, advice)


def _is_patched(module: str, name: str, part: str) -> bool:
    is_patched: Callable[[str], object] | None = getattr(sys.modules.get(module), name, None)
    return is_patched is not None and bool(is_patched(part))
