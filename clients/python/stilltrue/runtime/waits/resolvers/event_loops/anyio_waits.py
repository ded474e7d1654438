"""Waits of anyio, the basis of Starlette and FastAPI: for a thread, a limiter's token, a lock, a task group, an endpoint.

Rules:

1. A task that runs a function in a worker thread waits for that thread; before a thread has begun it, the task is not blocked.
2. A task that waits for a token of a limiter waits for one of the tasks that have one, if all tokens are taken, each by a task.
   Whoever raises the number of tokens, or releases one on behalf of a task that has one, ends the wait, too.
3. A task that exits a task group waits for one of the group's tasks: if one fails, the others are cancelled.
4. A lock knows the task that holds it, and only that task can release it.
5. The endpoint that ``BaseHTTPMiddleware`` (``@app.middleware("http")``) calls runs in a separate task; the request's task
   waits for it.
6. A task that sends into a full memory object stream, or into one without a buffer, waits for whoever can receive.
"""

from __future__ import annotations

import asyncio
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_BACKEND = "anyio/_backends/_asyncio.py"
_STREAMS = "anyio/streams/memory.py"
_OUTERMOST_MAX = 8
ON_BEHALF = frozenset({"release_on_behalf_of"})
_RAISING = ON_BEHALF | {"total_tokens"}
_CALLED = "BaseHTTPMiddleware.__call__.<locals>.call_next.<locals>.coro"


def sends_item(code: CodeType) -> bool:
    """Whether it sends an item into a memory object stream (rule 6)."""
    return code.co_name == "send" and code.co_filename.replace("\\", "/").endswith(_STREAMS)


def _read_thread(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 1."""
    future = variables_of(stack.frames[at]).get("future")
    if stack.task is None or future is None or future is not stack.future:
        return None
    workers = view.cached(__name__, lambda: _workers(view))
    ident = workers.get(id(future))
    if ident is None:
        return None
    return SeenWait(on=future, enders=(ident,), what="a function run by {}", once=True)


def _workers(view: ProcessView) -> dict[int, int]:
    """anyio's worker threads that run a function, by ``id`` of the future that each completes."""
    found: dict[int, int] = {}
    for ident, stack in view.stacks().items():
        for frame in stack.frames[-_OUTERMOST_MAX:]:
            code = frame.f_code
            if qualname_of(code) == "WorkerThread.run" and code.co_filename.replace("\\", "/").endswith(_BACKEND):
                future = variables_of(frame).get("future")
                if future is not None:
                    found[id(future)] = ident
    return found


def _read_limiter(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 2."""
    names = variables_of(stack.frames[at])
    limiter, event = names.get("self"), names.get("event")
    if stack.task is None or stack.future is None or event is None:
        return None
    borrowers, total = attribute_of(limiter, "_borrowers"), attribute_of(limiter, "_total_tokens")
    if type(borrowers) is not set or not isinstance(total, int | float):
        return None
    holders = tuple(borrowers.copy())
    if len(holders) < total or not all(isinstance(one, asyncio.Task) for one in holders):
        return None
    what = "a token of anyio's limiter, all of which are held by {}"
    return SeenWait(
        on=stack.future,
        enders=holders,
        what=what,
        handles=(limiter,),
        ended_through=(limiter,),
        ending_names=_RAISING,
        once=True,
    )


def _read_group(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 3."""
    group = variables_of(stack.frames[at]).get("self")
    tasks, scope = attribute_of(group, "_tasks"), attribute_of(group, "cancel_scope")
    if at != 0 or stack.task is None or type(tasks) is not set or attribute_of(group, "_on_completed_fut") is not stack.future:
        return None
    left = tuple(one for one in tasks.copy() if not one.done())
    if not left or stack.future is None:
        return None
    return SeenWait(on=stack.future, enders=left, what="the end of one of {}", handles=(group, scope), once=True)


def _read_lock(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 4."""
    names = variables_of(stack.frames[at])
    owner = attribute_of(names.get("self"), "_owner_task")
    if at != 0 or stack.task is None or stack.future is None or names.get("fut") is not stack.future:
        return None
    if not isinstance(owner, asyncio.Task) or owner.done() or owner is stack.task:
        return None
    return SeenWait(on=stack.future, enders=(owner,), what="a lock that {} holds", once=True)


def _read_middleware(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 5."""
    if stack.task is None or stack.future is None:
        return None
    group = variables_of(stack.frames[at]).get("task_group")
    tasks: Any = attribute_of(group, "_tasks")
    if type(tasks) is not set:
        return None
    called = [one for one in tasks.copy() if one.get_name().endswith(_CALLED) and not one.done()]
    if len(called) != 1:
        return None
    return SeenWait(on=stack.future, enders=(called[0],), what="the reply of its middleware's next handler: {}", once=True)


RESOLVERS = (
    Resolver(((_BACKEND, "AsyncIOBackend.run_sync_in_worker_thread"),), _read_thread),
    Resolver(((_BACKEND, "CapacityLimiter.acquire_on_behalf_of"),), _read_limiter),
    Resolver(((_BACKEND, "Lock.acquire"),), _read_lock),
    Resolver(((_BACKEND, "TaskGroup.__aexit__"),), _read_group),
    Resolver((("starlette/middleware/base.py", "BaseHTTPMiddleware.__call__.<locals>.call_next"),), _read_middleware),
)
