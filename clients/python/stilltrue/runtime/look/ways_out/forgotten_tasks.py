"""Tasks that a frame keeps in a variable without ever using it again: ``for job in jobs: task = create_task(job)``.

Rules:

1. A party that has a task or its coroutine can end it, but not through a variable that its code never reads again, however it
   continues. Nor does that end when the variable is dropped, as long as the frame does not return, or all tasks are cancelled
   then anyway.
2. Nothing is known of a variable that an inner function uses, nor of any variable of code that may read them all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from types import CodeType, CoroutineType, FrameType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.reachability.names.code_names import LOCALS

_TASKS_MAX = 1_000
_KINDS = (asyncio.Task, CoroutineType)


def without_forgotten_tasks(frame: FrameType, held: Iterable[Any], *, may_return: bool) -> tuple[Any, ...]:
    """``held``, what a frame refers to, without the tasks and coroutines that it has forgotten, and the lists of such.

    ``may_return``: whether all tasks are cancelled when the frame returns.
    """
    held = tuple(held)
    if not any(map(_is_of_tasks, held)):
        return held
    code, ahead = frame.f_code, ahead_of(frame.f_code, frame.f_lasti)
    if not ahead.known or (ahead.returns and not may_return) or not LOCALS.isdisjoint(code.co_names):
        return held
    unused = _unused_from(code, frame.f_lasti)
    forgotten = Counter(id(one) for name, one in variables_of(frame).items() if name in unused)
    used = Counter(map(id, held))
    return tuple(one for one in held if used[id(one)] > forgotten[id(one)] or not _is_of_tasks(one))


@cached_by_code
def _unused_from(code: CodeType, at: int) -> frozenset[str]:
    """A code's own variables that it neither reads nor sets from an offset on, exceptions included."""
    flow = ControlFlow(code, instructions_of(code))
    used = flow.names(flow.reached([flow.at(at)]))
    return frozenset(code.co_varnames).difference(code.co_cellvars, used)


def _is_of_tasks(one: Any) -> bool:
    """Whether it is a task or a coroutine, or a list or set of nothing else."""
    if type(one) not in (list, set):
        return issubclass(type(one), _KINDS)
    try:
        return 0 < len(one) <= _TASKS_MAX and all(issubclass(type(each), _KINDS) for each in one)
    except RuntimeError:  # it changed during the read
        return False
