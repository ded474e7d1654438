"""Reads how gRPC keeps a call whose handler has ended without a status, and who else refers to it."""

from __future__ import annotations

import gc
import sys
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Iterator
from typing import Any

from stilltrue.runtime.compat.callables import Task, coroutine_of, module_of
from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc_task
from stilltrue.runtime.compat.tasks import is_task, tasks_of

_STATE = "RPCState"
_CONTEXT = "_ServicerContext"
_COMPILED = ("grpc.", "_cython")
_PARTS_MAX = 100
BLOCKS_MAX = 1_500_000
"""In a process with more memory blocks the walk would take too long."""
_FROZEN_MAX = 1_000
"""Python 3.12 has frozen some hundred objects of its own when it starts; the collector does not list those."""
_calibration = [object()]
_OURS = sys.getrefcount(_calibration[0])
"""The references from a list and the call itself."""


def tasks_that_await_ends(loop: AbstractEventLoop) -> Iterator[tuple[Task, Task]]:
    """gRPC's tasks that wait for the end of a call that ``loop`` serves, each with the task of its handler."""
    for task in tasks_of(loop) or ():
        if not task.done() and is_grpc_task(task):
            scopes = (one for one in gc.get_referents(coroutine_of(task)) if _is_compiled(one))
            handlers = (one for scope in scopes for one in gc.get_referents(scope) if is_task(one) and one is not task)
            yield from ((task, handler) for handler in dict.fromkeys(handlers))


def is_call_left_to_grpc(waiting: Task) -> bool:
    """Whether the call whose end ``waiting`` awaits has no context any more, so that no code can answer it.

    If so, it stays so. Walks the heap once; in a large process, or one with frozen objects, the answer is False.
    """
    if sys.getallocatedblocks() > BLOCKS_MAX or gc.get_freeze_count() > _FROZEN_MAX:
        return False
    states = [one for one in _parts_of(coroutine_of(waiting)) if type(one).__name__ == _STATE]
    if len(states) != 1:
        return False
    return not any(type(one).__name__ == _CONTEXT for one in gc.get_referrers(states[0]))


def is_only_reference(kept: list[Any]) -> bool:
    """Whether nothing but this list refers to its only object."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or weakref.getweakrefcount(kept[0]):
        return False
    return sys.getrefcount(kept[0]) == _OURS


def _parts_of(coroutine: Any) -> Iterator[Any]:
    """The coroutines that a compiled coroutine of gRPC awaits, the variables of all, and the call itself; each once."""
    todo, seen = [coroutine], {id(coroutine)}
    while todo and len(seen) < _PARTS_MAX:
        for one in gc.get_referents(todo.pop()):
            if id(one) in seen or not _is_compiled(one):
                continue
            seen.add(id(one))
            yield one
            if type(one).__name__ != _STATE and ("scope" in type(one).__name__ or type(one).__name__ == "coroutine"):
                todo.append(one)


def _is_compiled(thing: Any) -> bool:
    return module_of(type(thing)).startswith(_COMPILED)
