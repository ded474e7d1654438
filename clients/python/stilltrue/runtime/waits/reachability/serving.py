"""Threads that serve until they are asked to stop: ``server.start(); stop.wait(); server.stop(5)``.

Such a thread waits for nobody. Its work is done by the server's threads, and a stop may never be asked for: so neither it nor
whoever joins it is deadlocked. It is no such thread if it goes on to end a wait of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.waits.ending_operations import ACKNOWLEDGING, COMPLETING, NOTIFYING, PUTTING, RELEASE, SETTING, TAKING

_STOPS = "stop"
_ENDING_WAITS = SETTING | NOTIFYING | PUTTING | COMPLETING | TAKING | ACKNOWLEDGING | RELEASE
_ATTRIBUTES_MAX = 100


def serves_until_stopped(frames: Sequence[FrameType]) -> bool:
    """Whether a thread with these frames, innermost first, has a running gRPC server that the rest of its code stops."""
    for frame in frames:
        if is_application(frame.f_code) and any(map(compat.is_running_server, _values_of(frame))):
            ahead = ahead_of(frame.f_code, frame.f_lasti)
            return ahead.known and _STOPS in ahead.names and _ENDING_WAITS.isdisjoint(ahead.names)
    return False


def _values_of(frame: FrameType) -> Iterator[Any]:
    """A frame's variables, and the attributes of its object."""
    names = variables_of(frame)
    yield from names.values()
    try:
        own = object.__getattribute__(names.get("self"), "__dict__")
    except AttributeError:
        return
    if type(own) is dict and len(own) <= _ATTRIBUTES_MAX:
        yield from list(own.values())
