"""Loops that only ask, again and again, whether something has ended: ``while not future.done(): time.sleep(0.1)``.

Rules:

1. From the call at which the function is, its code leads to one call alone, such as ``is_alive()`` or ``done()`` of a variable
   and, where that has not ended, back to the same place, without any other call. So it goes on once the other has ended. A call
   may wait and ask at once: ``while not event.wait(1)``.
2. No other code sets the variable: it is one of the function's own, or a module's that is being run, if none of its functions
   sets it.
3. A program asks like this to be able to handle Ctrl-C, too: then its other threads may be idle until a signal comes. So a
   thread or task counts as active if one of its functions names ``KeyboardInterrupt``.
"""

from __future__ import annotations

import dis
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import loop_around, names_at
from stilltrue.runtime.look.code.names import CALLING
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.delegates import call_at
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

ASKS = {"is_alive": "IF_TRUE", "done": "IF_FALSE", "is_set": "IF_FALSE", "wait": "IF_FALSE", "poll": "IF_NONE"}
"""The methods that ask, with how a jump that goes on asking tests their result."""
_OTHERWISE = {"IF_TRUE": "IF_FALSE", "IF_FALSE": "IF_TRUE", "IF_NONE": "IF_NOT_NONE"}
_WAITS = "wait"
_CALLS = frozenset({"CALL", "CALL_KW"})
_HARMLESS = frozenset({"POP_TOP", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN"})
_OF_AWAIT = frozenset({"GET_AWAITABLE", "SEND", "END_SEND"})
_IN_AWAIT = frozenset({"GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "CACHE"})
"""The instructions at which a function that awaits may be."""
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "SEND"})
"""Those that continue at one other place; ``SEND`` does once what is awaited is done."""
_STEPS_MAX = 60
_AT_EVENT = 2
"""The frame that waits for an event, above two of ``threading``'s."""


@dataclass(frozen=True, slots=True)
class PollingLoop:
    """A loop that asks by a method ``asks`` of the ``variable``; ``offsets``: those of its instructions."""

    variable: str
    asks: str
    offsets: frozenset[int]


def only_asks(code: CodeType, at: int) -> bool:
    """Whether the loops around an offset make no other call than those of such a loop."""
    loop = loop_at(code, at)
    if loop is None:
        return False
    every, around = instructions_of(code), loop_around(code, at)[1]
    return all(every[index].offset in loop.offsets for index in around if every[index].opname in CALLING)


def may_ask(code: CodeType) -> bool:
    """Whether a function of the application's may have such a loop."""
    return not ASKS.keys().isdisjoint(code.co_names) and is_application(code)


def may_poll(code: CodeType) -> bool:
    """Whether a function may sleep in such a loop."""
    return may_ask(code) and "sleep" in (*code.co_names, *code.co_varnames)


@dataclass(frozen=True, slots=True)
class Asking:
    """A function with this ``code`` is in a ``loop`` that asks about a ``thing``."""

    code: CodeType
    loop: PollingLoop
    thing: OwnRef

    def still_in(self, frames: Iterable[FrameType]) -> bool:
        """Whether one of these frames is in that loop, and asks about the same."""
        return any(one.f_code is self.code and self._is_at(one) for one in frames)

    def _is_at(self, frame: FrameType) -> bool:
        return frame.f_lasti in self.loop.offsets and value_in(frame, self.loop.variable) is self.thing()

    def still_in_thread(self, ident: int) -> Callable[[], bool]:
        """A function that returns whether this thread is still in that loop."""
        return lambda: self.still_in(frames_of_thread(ident))


def asking_in(frame: FrameType) -> Asking | None:
    """What a frame asks about in such a loop; None if it is in none."""
    loop = loop_at(frame.f_code, frame.f_lasti) if may_ask(frame.f_code) else None
    found = None if loop is None else value_in(frame, loop.variable)
    return None if loop is None or found is None else Asking(frame.f_code, loop, OwnRef(found))


def asked_by_thread(frames: Sequence[FrameType]) -> Asking | None:
    """What a thread asks about while it sleeps, or waits for an event with a timeout, in such a loop."""
    if compat.waits_for_event(frames) and not compat.is_endless_wait(frames[0]) and len(frames) > _AT_EVENT:
        asking = asking_in(frames[_AT_EVENT])
        if asking is not None and asking.thing() is not variables_of(frames[_AT_EVENT - 1]).get("self"):
            return None
    else:
        asking = asking_in(frames[0]) if may_poll(frames[0].f_code) and _sleeps(frames[0]) else None
    return None if asking is None or is_interrupted(frames) else asking


def _sleeps(frame: FrameType) -> bool:
    """Whether all that a frame may call at its position, by name, is ``time.sleep()``."""
    names = names_at(frame.f_code, frame.f_lasti)
    known = (frame.f_globals.get(one) for one in names)
    return "sleep" in names and any(one is time or one is time.sleep for one in known)


def is_interrupted(frames: Iterable[FrameType]) -> bool:
    """Rule 3."""
    return any("KeyboardInterrupt" in frame.f_code.co_names for frame in frames if is_application(frame.f_code))


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
    begin = awaited_call(every, flow.at(at))
    begin += every[begin].opname == "PRECALL"
    if every[begin].opname not in _CALLS:
        return None
    waits = _asked(every, begin)
    asks = [begin] if waits is not None and waits[1] == _WAITS and _is_tested(every, begin) else _next_call(every, flow, begin)
    asked = None if asks is None else _asked(every, asks[-1])
    if asks is None or asked is None:
        return None
    tests = _after(every, asks[-1])
    goes_on = _if_not_ended(every, flow, tests, ASKS[asked[1]])
    back = None if goes_on is None else _next_call(every, flow, goes_on, entered=True)
    if back is None or back[-1] != begin:
        return None
    ends = [*(one.offset for one in every[1:]), len(code.co_code)]
    within = {begin, *_awaiting_after(every, begin), *asks, *range(asks[-1], tests + 1), *back}
    return PollingLoop(*asked, frozenset(offset for index in within for offset in range(every[index].offset, ends[index])))


def awaited_call(every: Sequence[dis.Instruction], index: int) -> int:
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


def _after(every: Sequence[dis.Instruction], call: int) -> int:
    """The instruction that uses the result of a call."""
    return next((index for index in range(call + 1, len(every)) if every[index].opname not in _HARMLESS - {"POP_TOP"}), 0)


def _is_tested(every: Sequence[dis.Instruction], call: int) -> bool:
    return every[_after(every, call)].opname.startswith("POP_JUMP_")


def _asked(every: Sequence[dis.Instruction], index: int) -> tuple[str, str] | None:
    """The variable of which a call asks, and the method."""
    call = call_at(every, index)
    if call is None or call.name not in ASKS or len(call.receiver) != 1 or call.receiver[0][0] != "name":
        return None
    if len(call.arguments) != (call.name == _WAITS):
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
