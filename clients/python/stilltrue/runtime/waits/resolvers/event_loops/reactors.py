"""Waits of threads for Twisted's reactor to run a function (``blockingCallFromThread``): for the thread in which it runs.

Rules:

1. The wait is known only while the function is in the reactor's queue and has not begun: only the reactor's own thread takes it
   from there. A function that has begun may end in a ``Deferred``, which anything may fire.
2. While the reactor runs such functions, those that it has run stay in the queue: its frame counts them.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_REACTOR = "twisted/internet/base.py"
_NAMES = frozenset({"threadCallQueue", "runUntilCurrent", "iterate", "_callFromThread"})


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    reactor, called, queue = (names.get(name) for name in ("reactor", "_callFromThread", "queue"))
    if stack.task is not None or called is None or queue is None or not compat.is_endless_wait(stack.frames[0]):
        return None
    waiting = attribute_of(reactor, "threadCallQueue")
    places = [index for index, one in enumerate(list(waiting)) if one[0] is called] if type(waiting) is list else []
    running = [one for one in view.stacks().values() if any(_is_of(frame, reactor, ".run") for frame in one.frames)]
    if len(places) != 1 or len(running) != 1:
        return None
    counted = [variables_of(one).get("count", -1) for one in running[0].frames if _is_of(one, reactor, ".runUntilCurrent")]
    enders = (running[0].ident,) if all(type(one) is int and places[0] > one for one in counted) else None
    return SeenWait(on=queue, enders=enders, what="the reactor, which {} runs", ended_through=(reactor,), ending_names=_NAMES)


def _is_of(frame: FrameType, reactor: Any, name: str) -> bool:
    """Whether a frame is in this method of the reactor."""
    code = frame.f_code
    if not qualname_of(code).endswith(name) or not code.co_filename.replace("\\", "/").endswith(_REACTOR):
        return False
    return variables_of(frame).get("self") is reactor


RESOLVERS = (Resolver((("twisted/internet/threads.py", "blockingCallFromThread"),), _read),)
