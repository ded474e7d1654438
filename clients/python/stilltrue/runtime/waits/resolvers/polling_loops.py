"""Loops that only ask, again and again, whether something has ended: ``while not future.done(): time.sleep(0.1)``.

Rules:

1. From the call at which the function is, its code leads to one call alone, ``is_alive()`` or ``done()`` of a variable and,
   where that has not ended, back to the same place, without any other call. So it goes on once the other has ended.
2. No other code sets the variable: it is one of the function's own, or a module's that is being run, if none of its functions
   sets it.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.waits.holders.delegates import call_at
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

ASKS = {"is_alive": "IF_TRUE", "done": "IF_FALSE"}
"""The methods that ask, with how a jump that goes on asking tests their result."""
_OTHERWISE = {"IF_TRUE": "IF_FALSE", "IF_FALSE": "IF_TRUE"}
_CALLS = frozenset({"CALL", "CALL_KW"})
_HARMLESS = frozenset({"POP_TOP", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN"})
_OF_AWAIT = frozenset({"GET_AWAITABLE", "SEND", "END_SEND"})
_IN_AWAIT = frozenset({"GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "CACHE"})
"""The instructions at which a function that awaits may be."""
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "SEND"})
"""Those that continue at one other place; ``SEND`` does once what is awaited is done."""
_STEPS_MAX = 60


@dataclass(frozen=True, slots=True)
class PollingLoop:
    """A loop that asks by a method ``asks`` of the ``variable``; ``offsets``: those of its instructions."""

    variable: str
    asks: str
    offsets: frozenset[int]


def may_ask(code: CodeType) -> bool:
    """Whether a function of the application's may have such a loop."""
    return not ASKS.keys().isdisjoint(code.co_names) and is_application(code)


def asked_in(frame: FrameType) -> tuple[PollingLoop, Any] | None:
    """The loop in which a frame is, and what it asks; None if it is in none."""
    loop = loop_at(frame.f_code, frame.f_lasti) if may_ask(frame.f_code) else None
    return None if loop is None else (loop, value_in(frame, loop.variable))


def value_in(frame: FrameType, name: str) -> Any:
    """The value of a variable that no other code sets; None if others may (rule 2)."""
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
def loop_at(code: CodeType, at: int) -> PollingLoop | None:
    """The loop around the call, or the ``await`` of a call, at an offset, if it is such a loop (rule 1)."""
    every = instructions_of(code)
    flow = ControlFlow(code, every)
    begin = _awaited_call(every, flow.at(at))
    begin += every[begin].opname == "PRECALL"
    if every[begin].opname not in _CALLS:
        return None
    asks = _next_call(every, flow, begin)
    asked = None if asks is None else _asked(every, asks[-1])
    if asks is None or asked is None:
        return None
    tests = next((index for index in range(asks[-1] + 1, len(every)) if every[index].opname not in _HARMLESS - {"POP_TOP"}), 0)
    goes_on = _if_not_ended(every, flow, tests, ASKS[asked[1]])
    back = None if goes_on is None else _next_call(every, flow, goes_on, entered=True)
    if back is None or back[-1] != begin:
        return None
    ends = [*(one.offset for one in every[1:]), len(code.co_code)]
    within = {begin, *_awaiting_after(every, begin), *asks, *range(asks[-1], tests + 1), *back}
    return PollingLoop(*asked, frozenset(offset for index in within for offset in range(every[index].offset, ends[index])))


def _awaited_call(every: Sequence[dis.Instruction], index: int) -> int:
    """The call whose result is awaited at an instruction; the instruction itself if it awaits nothing."""
    call = index
    while call > 0 and every[call].opname in _IN_AWAIT:
        call -= 1
    awaits = any(one.opname == "GET_AWAITABLE" for one in every[call + 1 : index + 1])
    return call if awaits else index


def _awaiting_after(every: Sequence[dis.Instruction], call: int) -> Iterator[int]:
    """The instructions after a call at which a function that awaits its result may be."""
    for index in range(call + 1, len(every)):
        if every[index].opname not in _IN_AWAIT:
            return
        yield index


def _asked(every: Sequence[dis.Instruction], index: int) -> tuple[str, str] | None:
    """The variable of which a call asks, and the method."""
    call = call_at(every, index)
    if call is None or call.name not in ASKS or call.arguments or len(call.receiver) != 1 or call.receiver[0][0] != "name":
        return None
    return str(call.receiver[0][1]), call.name


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
        if one.opname not in _HARMLESS | _ALWAYS | _OF_AWAIT and not one.opname.startswith("LOAD_"):
            return None
    return None


def _steps(every: Sequence[dis.Instruction], flow: ControlFlow, index: int) -> Iterator[int]:
    """The instructions from one on, while there is only one way."""
    for _ in range(_STEPS_MAX):
        yield index
        ways = list(flow.following(index))
        if every[index].opname in _ALWAYS and is_jump(every[index]):
            ways = [flow.index_of[every[index].argval]]
        if len(ways) != 1:
            return
        index = ways[0]


def _if_not_ended(every: Sequence[dis.Instruction], flow: ControlFlow, index: int, asking: str) -> int | None:
    """Where a jump that tests the answer leads while the other has not ended; None for any other instruction.

    ``asking``: how one tests the answer that goes on asking.
    """
    one = every[index]
    if not is_jump(one) or not one.opname.startswith("POP_JUMP_"):
        return None
    if one.opname.endswith(asking):
        return flow.index_of[one.argval]
    return index + 1 if one.opname.endswith(_OTHERWISE[asking]) else None
