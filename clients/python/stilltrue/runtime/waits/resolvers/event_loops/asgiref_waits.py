"""Waits of asgiref, the basis of Django's views: a thread in ``async_to_sync`` waits for the coroutine that it has passed on.

Rules:

1. The coroutine runs on a new loop in a thread of its own, or on the main loop; either way a task sets the result. Until then
   the thread only runs the functions that ``sync_to_async`` sends back to it. While it does, it is not at this place.
2. Such a function ends when the thread has run it: a task that awaits it waits for the thread
   (:func:`~stilltrue.runtime.compat.running_items`).
3. The wait ends early if a party cancels or completes the future, or stops the loop.
"""

from __future__ import annotations

import threading
from collections import deque
from types import CodeType
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait, Task

_WAIT = threading.Condition.wait.__code__
_WRAPS = ("asgiref/sync.py", "AsyncToSync.main_wrap")
_CALLER = "AsyncToSync.__call__"
_STOPPING = frozenset({"stop"})


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    frame = stack.frames[at]
    names = variables_of(frame)
    executor, future = names.get("self"), names.get("future")
    waits = at == 1 and stack.frames[0].f_code is _WAIT and variables_of(stack.frames[0]).get("timeout", 0) is None
    items = attribute_of(executor, "_work_items")
    if not waits or stack.task is not None or type(items) is not deque or items or compat.is_finished(future):
        return None
    weak, ident, code = ref(future), stack.ident, frame.f_code

    def same() -> bool:
        frames = frames_of_thread(ident)
        return len(frames) > 1 and frames[1].f_code is code and variables_of(frames[1]).get("future") is weak()

    task = _task_of(stack, at, view)
    return SeenWait(
        on=future,
        enders=None if task is None else (task,),
        what="the end of a coroutine, which {} runs",
        handles=(future,),
        ended_through=() if task is None else (task.get_loop(),),
        ending_names=_STOPPING,
        once=True,
        same=same,
    )


def _task_of(stack: CallStack, at: int, view: ProcessView) -> Task | None:
    """The task that runs a thread's coroutine and sets the result; None if it is running, or has yet to begin."""
    caller = next((frame for frame in stack.frames[at + 1 :] if qualname_of(frame.f_code) == _CALLER), None)
    result = None if caller is None else variables_of(caller).get("call_result")
    for task, other in view.stacks_of_tasks().items() if result is not None else ():
        for frame in other.frames:
            if _wraps(frame.f_code) and variables_of(frame).get("call_result") is result:
                return task
    return None


@cached_by_code
def _wraps(code: CodeType) -> bool:
    return qualname_of(code) == _WRAPS[1] and code.co_filename.replace("\\", "/").endswith(_WRAPS[0])


RESOLVERS = (Resolver((("asgiref/current_thread_executor.py", "CurrentThreadExecutor.run_until_future"),), _read),)
