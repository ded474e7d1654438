"""Threads that have asked something and wait for the answer: an actor that waits at a queue which it has made for the reply.

Rules:

1. An idle thread waits for work at a queue that it has been given, or in a loop. So a thread waits for an answer if it takes
   once from a queue that the calling function has made itself, and that function is not the first of its thread.
2. The main thread may wait so for the end of the program.
"""

from __future__ import annotations

import queue
import threading
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import instructions, is_jump, is_same_place
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.waits.wait import CallStack

_GET = queue.Queue.get.__code__
_ENTRIES_MAX = 4


def waits_for_answer(stack: CallStack) -> bool:
    """Whether the thread with this stack waits for an answer (rule 1)."""
    if stack.task is not None or stack.ident == threading.main_thread().ident:
        return False
    inner = next((index for index, frame in enumerate(stack.frames[:_ENTRIES_MAX]) if frame.f_code is _GET), None)
    if inner is None or inner + 1 >= len(stack.frames):
        return False
    asking = stack.frames[inner + 1]
    first = next((frame for frame in reversed(stack.frames) if is_application(frame.f_code)), None)
    if asking is first or not is_application(asking.f_code) or _is_in_loop(asking.f_code, asking.f_lasti):
        return False
    return _has_made(asking, variables_of(stack.frames[inner]).get("self"))


def _has_made(frame: FrameType, thing: Any) -> bool:
    """Whether a local variable of the function, not one of its arguments, is this object."""
    code = frame.f_code
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = variables_of(frame)
    return any(names.get(name) is thing for name in (*code.co_varnames, *code.co_cellvars) if name not in given)


@cached_by_code
def _is_in_loop(code: CodeType, at: int) -> bool:
    """Whether the code at an offset, or a copy of it (the test of a ``while`` loop is compiled twice), is in a loop."""
    every = list(instructions(code))
    loops = [(one.argval, one.offset) for one in every if is_jump(one) and one.argval <= one.offset]
    here = next((one for one in reversed(every) if one.offset <= at and one.opname != "CACHE"), None)  # at ends a call's cache
    copies = [] if here is None else [one.offset for one in every if one.opname == here.opname and is_same_place(one, here)]
    return any(begins <= offset < ends for begins, ends in loops for offset in (at, *copies))
