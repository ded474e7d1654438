"""Whether a thread or task waits in a loop as an idle worker does, which waits again and again for its next item or turn.

Rules:

1. A thread or task whose code waits in a loop, or reaches a loop that waits likewise, is idle. An ``await`` is no loop.
2. A loop that only waits at a condition (``while not ready: condition.wait()``), or only asks about an event (``while not
   event.is_set(): time.sleep(1)``), does not count: it says what the thread waits for.
3. In the body of a ``for`` loop, the thread is at work on one of several things, unless the loop counts (``range``, ``count``).
4. So is one whose loop takes items from a queue by another call than that in which it waits.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from types import CodeType, FrameType

from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.instructions_ahead import is_looped, loop_around
from stilltrue.runtime.look.code.names import ATTRIBUTES, CALLING
from stilltrue.runtime.waits.futures.completions import call_of
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.resolvers.polling_loops import awaited_call, only_asks

_GET = "get"
_TAKING = frozenset({_GET, "get_nowait"})
_QUEUES = (queue.Queue, queue.SimpleQueue, asyncio.Queue)
_AT_CONDITION = (threading.Condition.wait.__code__, asyncio.Condition.wait.__code__)
_COUNTING = frozenset({"range", "count", "repeat", "cycle", "iter"})
"""Functions for loops that do a thing several times, rather than one thing after the other."""


def is_idle(frames: Sequence[FrameType]) -> bool:
    """Whether the thread or task with these frames, innermost first, waits in such a loop."""
    inner: CodeType | None = None
    for frame in frames:
        code, at = frame.f_code, frame.f_lasti
        if is_application(code):
            if _is_at_item(frame):
                return False
            called = _GET if inner is None else inner.co_name  # only a compiled get() has no frame
            waits = only_asks(code, at) or (inner in _AT_CONDITION and _only_waits(code, at))
            if is_looped(code, _place(code, at)[0], called) and not waits:
                return True
        inner = code
    return False


def _is_at_item(frame: FrameType) -> bool:
    """Rules 3 and 4."""
    code, at = frame.f_code, frame.f_lasti
    if _is_in_body(code, at):
        return True
    sources = _sources(code, at)
    names = variables_of(frame) if sources else {}
    return any(issubclass(type(value_of(one, names, frame.f_globals)), _QUEUES) for one in sources)


@cached_by_code
def _only_waits(code: CodeType, at: int) -> bool:
    """Rule 2."""
    try:
        place, own = _place(code, at)
        here, loop = loop_around(code, place)
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return False
    every = instructions_of(code)
    return here in loop and {index for index in loop if every[index].opname in CALLING} == {own}


@cached_by_code
def _is_in_body(code: CodeType, at: int) -> bool:
    """Rule 3."""
    if not _COUNTING.isdisjoint(code.co_names):
        return False
    try:
        here, loop = loop_around(code, _place(code, at)[0])
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return False
    every = instructions_of(code)
    heads = (every[index] for index in loop if every[index].opname == "FOR_ITER" and index != here)
    return any(head.offset < every[here].offset < int(head.argval) for head in heads)


@cached_by_code
def _sources(code: CodeType, at: int) -> tuple[Expression, ...]:
    """The objects of which the loop around ``at`` calls ``get()``, in another call than that at ``at``."""
    if _TAKING.isdisjoint(code.co_names):
        return ()
    try:
        place, own = _place(code, at)
        _, loop = loop_around(code, place)
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return ()
    every = instructions_of(code)
    naming = (index for index in sorted(loop) if every[index].opname in ATTRIBUTES and every[index].argval in _TAKING)
    taking = (index for index in naming if call_of(every, index) not in (None, own))
    return tuple(source for index in taking if (source := expression_before(every, index)))


@cached_by_code
def _place(code: CodeType, at: int) -> tuple[int, int]:
    """The offset at which to look for loops, and the instruction that calls what the frame waits in.

    In an ``await``, it is the offset after that. CPython 3.11 calls compiled functions in the instruction before ``CALL``.
    """
    every = instructions_of(code)
    here = max((index for index, one in enumerate(every) if one.offset <= at), default=0)
    call = awaited_call(every, here)
    send = next((one for one in every[call + 1 :] if one.opname == "SEND"), None) if call != here else None
    while every[call].opname in ("PRECALL", "CACHE"):
        call += 1
    return at if send is None or not is_jump(send) else int(send.argval), call  # it does not jump on 3.10
