"""Waits of threads that ask again and again whether another thread has ended: ``while thread.is_alive(): thread.join(1)``.

Rules:

1. The thread sleeps, or joins with a timeout. From there its code leads to ``is_alive()`` alone and, where that is true, back
   to the same place, without any other call. So it goes on once the other thread has ended.
2. The other thread is in a variable that no other code sets: one of the function's own, or a module's that is being run, if
   none of its functions sets it.
3. It runs now and then. It is in the same wait while it is in the same loop, for the same thread.
4. A program asks like this to be able to handle Ctrl-C, too: then its other threads may be idle until a signal comes. So such a
   thread counts as active if one of its functions names ``KeyboardInterrupt``.
"""

from __future__ import annotations

import dis
import threading
import time
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import names_at
from stilltrue.runtime.waits.holders.delegates import call_at
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_ASKS = "is_alive"
_CALLS = frozenset({"CALL", "CALL_KW"})
_HARMLESS = frozenset({"POP_TOP", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN"})
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE"})
_STEPS_MAX = 60
_Loop = tuple[str, frozenset[int]]
"""The variable with the other thread, and the offsets of the loop's instructions."""


def may_poll(code: CodeType) -> bool:
    """Whether a function may sleep until a thread has ended."""
    return _ASKS in code.co_names and "sleep" in (*code.co_names, *code.co_varnames) and is_application(code)


def _read_join(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    timed = variables_of(stack.frames[at]).get("timeout") is not None
    return _of(stack, at + 1) if timed and at + 1 < len(stack.frames) else None


def _read_sleep(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    frame = stack.frames[0]
    return _of(stack, 0) if may_poll(frame.f_code) and _sleeps(frame) else None


def _sleeps(frame: FrameType) -> bool:
    """Whether all that a frame may call at its position, by name, is ``time.sleep()``."""
    names = names_at(frame.f_code, frame.f_lasti)
    known = (frame.f_globals.get(one) for one in names)
    return "sleep" in names and any(one is time or one is time.sleep for one in known)


def _of(stack: CallStack, at: int) -> SeenWait | None:
    frame, ident = stack.frames[at], stack.ident
    awaited = None if stack.task is not None or _is_interrupted(stack) else _awaited(frame)
    if awaited is None:
        return None
    code, loop, weak = frame.f_code, _loop_at(frame.f_code, frame.f_lasti), ref(awaited)

    def same() -> bool:
        frames = (one for one in frames_of_thread(ident) if one.f_code is code)
        return any(loop is not None and one.f_lasti in loop[1] and _value(one, loop[0]) is weak() for one in frames)

    return SeenWait(on=awaited, enders=(awaited,), what="the end of {}, about which it asks again and again", same=same)


def _is_interrupted(stack: CallStack) -> bool:
    """Rule 4."""
    return any("KeyboardInterrupt" in frame.f_code.co_names for frame in stack.frames if is_application(frame.f_code))


def _awaited(frame: FrameType) -> threading.Thread | None:
    """The thread for whose end a frame polls (rules 1 and 2)."""
    if _ASKS not in frame.f_code.co_names or not is_application(frame.f_code):
        return None
    loop = _loop_at(frame.f_code, frame.f_lasti)
    if loop is None:
        return None
    found = _value(frame, loop[0])
    kind = type(found)
    plain = issubclass(kind, threading.Thread) and kind.is_alive is threading.Thread.is_alive
    return found if plain and found.ident is not None else None


def _value(frame: FrameType, name: str) -> Any:
    """The value of a variable that no other code sets; None if others may."""
    code = frame.f_code
    if name in code.co_varnames:
        return None if name in code.co_cellvars else variables_of(frame).get(name)
    is_modules = code.co_name == "<module>" and name not in _set_within(code)
    return frame.f_globals.get(name) if is_modules else None


@cached_by_code
def _set_within(code: CodeType) -> frozenset[str]:
    """The globals that functions in a module's code set."""
    every = (one for within in codes_within(code) if within is not code for one in instructions_of(within))
    return frozenset(str(one.argval) for one in every if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))


@cached_by_code
def _loop_at(code: CodeType, at: int) -> _Loop | None:
    """The loop around the call at an offset, if it is such a loop (rule 1)."""
    every = instructions_of(code)
    flow = ControlFlow(code, every)
    begin = flow.at(at)
    begin += every[begin].opname == "PRECALL"
    if every[begin].opname not in _CALLS:
        return None
    asks = _next_call(every, flow, begin)
    name = None if asks is None else _asked(every, asks[-1])
    if asks is None or name is None:
        return None
    tests = next((index for index in range(asks[-1] + 1, len(every)) if every[index].opname not in _HARMLESS - {"POP_TOP"}), 0)
    goes_on = _if_true(every, flow, tests)
    back = None if goes_on is None else _next_call(every, flow, goes_on, entered=True)
    if back is None or back[-1] != begin:
        return None
    ends = [*(one.offset for one in every[1:]), len(code.co_code)]
    within = {begin, *asks, *range(asks[-1], tests + 1), *back}
    return name, frozenset(offset for index in within for offset in range(every[index].offset, ends[index]))


def _asked(every: Sequence[dis.Instruction], index: int) -> str | None:
    """The variable whose ``is_alive()`` is called."""
    call = call_at(every, index)
    if call is None or call.name != _ASKS or call.arguments or len(call.receiver) != 1 or call.receiver[0][0] != "name":
        return None
    return str(call.receiver[0][1])


def _next_call(every: Sequence[dis.Instruction], flow: ControlFlow, index: int, *, entered: bool = False) -> list[int] | None:
    """The instructions from one to the next call, which is the last of them; None if anything else happens before.

    ``entered``: the first one counts.
    """
    found: list[int] = []
    for step in _steps(every, flow, index):
        if step == index and not entered and not found:
            found.append(step)
            continue
        found.append(step)
        one = every[step]
        if one.opname in _CALLS:
            return found
        if one.opname not in _HARMLESS | _ALWAYS and not one.opname.startswith("LOAD_"):
            return None
    return None


def _steps(every: Sequence[dis.Instruction], flow: ControlFlow, index: int) -> Iterator[int]:
    """The instructions from one on, while there is only one way."""
    for _ in range(_STEPS_MAX):
        yield index
        ways = list(flow.following(index))
        if every[index].opname in _ALWAYS:
            ways = [flow.index_of[every[index].argval]]
        if len(ways) != 1:
            return
        index = ways[0]


def _if_true(every: Sequence[dis.Instruction], flow: ControlFlow, index: int) -> int | None:
    """Where a jump that tests a value leads if it is true; None for any other instruction."""
    one = every[index]
    if not is_jump(one) or not one.opname.startswith("POP_JUMP_"):
        return None
    if one.opname.endswith("IF_TRUE"):
        return flow.index_of[one.argval]
    return index + 1 if one.opname.endswith("IF_FALSE") else None


RESOLVERS = (Resolver((("threading.py", "Thread.join"),), _read_join), Resolver((), _read_sleep))
