"""The ``SimpleQueue`` for whose next item a thread waits: its ``get()`` is compiled, so the caller's stack shows it.

Rules:

1. The caller is at a call without arguments, or at a loop over ``iter(queue.get, None)``: neither has a timeout.
2. The queue is empty. A thread with an item is about to go on.
"""

from __future__ import annotations

import gc
import queue
from types import BuiltinMethodType, CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.bytecode.stack_heights import kept_in_call
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.instructions_ahead import arguments_at

_ITERATOR = type(iter(int, 1))
_CALLING = frozenset({"CALL", "PRECALL"})
_GET = "get"


def queue_awaited(frame: FrameType) -> Any:
    """The ``SimpleQueue`` for whose next item a thread with this innermost frame waits without a timeout; else None."""
    code, at = frame.f_code, frame.f_lasti
    place = _place_at(code, at) if is_application(code) else None
    if place is None:
        return None
    kept, iterates = place
    top = compat.stack_value_at(frame, at, kept - 1)
    if iterates:
        referred = gc.get_referents(top) if type(top) is _ITERATOR else ()
        return next((found for one in referred if (found := _queue_of(one)) is not None), None)
    below = compat.stack_value_at(frame, at, kept - 2) if kept > 1 else None
    for function, one in ((below, top), (top, below)):
        if function is queue.SimpleQueue.get and _is_empty(one):
            return one
    return _queue_of(top) or _queue_of(below)


@cached_by_code
def _place_at(code: CodeType, at: int) -> tuple[int, bool] | None:
    """The height of the stack, and whether the frame iterates, where it may wait so; None elsewhere (rule 1)."""
    operation = opname_at(code, at)
    iterates = operation == "FOR_ITER"
    if not iterates and (operation not in _CALLING or _GET not in code.co_names or arguments_at(code, at)):
        return None
    kept = kept_in_call(code, at, compiled=True)
    return None if not kept else (kept, iterates)


def _queue_of(method: Any) -> Any:
    """The queue of a bound ``get``; None for anything else."""
    is_get = issubclass(type(method), BuiltinMethodType) and method.__name__ == _GET
    return method.__self__ if is_get and _is_empty(method.__self__) else None


def _is_empty(thing: Any) -> bool:
    """Rule 2."""
    return type(thing) is queue.SimpleQueue and thing.empty()
