"""Finds a server's options, which show after what time gRPC ends each call by itself.

An interceptor does not get the options. They are found once for each server, through gRPC's own thread or task that runs it.
Options that cannot be found count as not set.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_this_thread, variables_of

AGE_OPTION = "grpc.max_connection_age_ms"
GRACE_OPTION = "grpc.max_connection_age_grace_ms"
AGE_JITTER = 1.1
"""gRPC's core varies the age by 10 %: https://github.com/grpc/proposal/blob/master/A9-server-side-conn-mgt.md."""
ENDLESS_MS = 2**31 - 1
_DEPTH_MAX = 8


def call_seconds_max(options: Iterable[Any]) -> float | None:
    """The longest time that a call can last from its arrival; None: gRPC itself ends no call."""
    known: dict[str, Any] = {str(one[0]): one[1] for one in options if isinstance(one, tuple) and len(one) == 2}
    age, grace = known.get(AGE_OPTION, ENDLESS_MS), known.get(GRACE_OPTION, ENDLESS_MS)
    if not (isinstance(age, int) and isinstance(grace, int)) or ENDLESS_MS in (age, grace):
        return None
    return (AGE_JITTER * age + grace) / 1000


def options_of_thread() -> list[Any]:
    """The options of the server that the current thread runs."""
    for frame in frames_of_this_thread():
        server = getattr(variables_of(frame).get("state"), "server", None)
        if server is not None:
            return _options_behind(server)
    return []


def server_of_thread() -> Any:
    """gRPC's internal state of the server that the current thread runs, or None if it cannot be found."""
    states = (variables_of(frame).get("state") for frame in frames_of_this_thread())
    return next((state for state in states if hasattr(state, "rpc_states")), None)


def options_of_task() -> list[Any]:
    """The options of the server that the current task runs."""
    task = asyncio.current_task()
    return [] if task is None else _options_behind(compat.coroutine_of(task))


def _options_behind(thing: Any) -> list[Any]:
    """The first list of (name, value) options reachable from ``thing`` through gRPC's compiled objects."""
    level = [thing]
    for _ in range(_DEPTH_MAX):
        level = [one for holder in level for one in gc.get_referents(holder)]
        for one in level:
            if isinstance(one, list | tuple) and one and all(_is_option(entry) for entry in one):
                return list(one)
        level = [one for one in level if compat.module_of(type(one)).startswith(("grpc.", "_cython")) or type(one) is list]
    return []


def _is_option(entry: Any) -> bool:
    return type(entry) is tuple and len(entry) == 2 and isinstance(entry[0], str) and entry[0].startswith("grpc.")
