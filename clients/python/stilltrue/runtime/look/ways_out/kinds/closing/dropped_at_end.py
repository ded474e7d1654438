"""The ``__del__`` methods of the program's own classes that Python calls when a thread or task ends, for what it drops.

Rules:

1. A frame that may return, or raise an exception, drops its variables.
2. A thread that may return from all its frames drops its values of each ``threading.local`` that is a global of its code's
   modules. Whose values they are is not read: those of all threads count. A task drops the values in its context.
3. Code beyond a loop that polls a flag counts as reached.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import inherited
from stilltrue.runtime.look.progress.stack_ahead import frames_of_task, returns, stretches
from stilltrue.runtime.look.ways_out.actor_code import context_values


def called_at_end_of_thread(frames: Sequence[FrameType]) -> list[MethodType]:
    """The methods that are called at the end of a thread with these frames, innermost first."""
    spaces = {id(one.f_globals): one.f_globals for one in frames if is_own_code(one.f_code)}.values()
    locals_of_threads = [one for space in spaces for one in list(space.values()) if type(one) is threading.local]
    return _called(frames, [value for one in locals_of_threads for value in compat.values_in_threads(one)])


def called_at_end_of_task(task: Task) -> list[MethodType]:
    """The same for a task."""
    return _called(frames_of_task(task), context_values(task))


def _called(frames: Sequence[FrameType], kept: Iterable[Any]) -> list[MethodType]:
    own = {id(one): _finalizers(variables_of(one).values()) for one in frames if is_own_code(one.f_code)}
    at_end = _finalizers(kept)
    if not any(own.values()) and not at_end:
        return []
    found = [one for stretch in stretches(frames) if _may_end(stretch.ahead) for one in own.get(id(stretch.frame), ())]
    return [*found, *(at_end if any(returns(frames)) else ())]


def _may_end(ahead: Any) -> bool:
    return bool(ahead.returns or ahead.raises)


def _finalizers(things: Iterable[Any]) -> list[MethodType]:
    """The program's own ``__del__`` methods of these objects."""
    found = ((inherited(type(one), "__del__"), one) for one in things)
    return [
        MethodType(function, one)
        for function, one in found
        if type(function) is FunctionType and is_own_code(function.__code__)
    ]
