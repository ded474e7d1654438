"""Whether greenlets stand in for the threads of the process: gRPC blocks all of them at once, and the agent speaks gRPC."""

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
    """Whether the agent would hold up the whole process; says so once, and what to do."""
    library = next((library for library, *patch in _PATCHED if _is_patched(*patch)), "")
    if not library or (library == "gevent" and _COOPERATING in sys.modules):
        return False
    _warn(library)
    return True


@functools.cache
def _warn(library: str) -> None:
    advice = "; call grpc.experimental.gevent.init_gevent() first" if library == "gevent" else ""
    text = "not joined: %s has replaced the threads, all of which gRPC would hold up; this process is not watched%s"
    _LOGGER.warning(text, library, advice)


def _is_patched(module: str, name: str, part: str) -> bool:
    ask: Callable[[str], object] | None = getattr(sys.modules.get(module), name, None)
    return ask is not None and bool(ask(part))
