"""Loops that only ask, again and again, whether something has ended: ``while not future.done(): time.sleep(0.1)``.

Rules:

1. A call waits for a time, or asks: ``is_alive()`` or ``done()``, say, of a variable or an attribute. While that has not ended,
   all ways lead back to the same call, and pass no other call but such as only print, log or sleep
   (:mod:`~stilltrue.runtime.waits.resolvers.quiet_code`). So the function goes on once the other has ended. A call may wait and
   ask at once: ``while not event.wait(1)``; one whose time-out is an exception leads to the first ``except`` clause around it,
   if that catches it: ``except queue.Empty: continue``.
2. No other code sets the variable: it is one of the function's own, or a module's that is being run, if none of its functions
   sets it. Nor does any code set an attribute on the way, but for methods that make the object.
3. A program asks like this to be able to handle Ctrl-C, too: then its other threads may be idle until a signal comes. So a
   thread or task counts as active if one of its functions names ``KeyboardInterrupt``.
"""

from __future__ import annotations

import builtins
import dis
import queue
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import loop_around, names_at
from stilltrue.runtime.look.code.names import CALLING
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.delegates import Call, call_at
from stilltrue.runtime.waits.holders.with_blocks import Expression, instructions_of, operand_before, value_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.reachability.names.code_names import census
from stilltrue.runtime.waits.resolvers.quiet_code import PASSED, is_quiet, may_be_quiet

ASKS = {
    "is_alive": "IF_TRUE",
    "done": "IF_FALSE",
    "is_set": "IF_FALSE",
    "wait": "IF_FALSE",
    "acquire": "IF_FALSE",
    "poll": "IF_NONE",
}
"""The methods that ask, with how a jump that goes on asking tests their result."""
_RAISING: dict[str, type[Exception]] = {"result": futures.TimeoutError, "exception": futures.TimeoutError, "get": queue.Empty}
"""Those that raise an exception while it has not ended."""
_OTHERWISE = {"IF_TRUE": "IF_FALSE", "IF_FALSE": "IF_TRUE", "IF_NONE": "IF_NOT_NONE"}
_TIMED = frozenset({"wait", "acquire", *_RAISING})
_CALLS = frozenset({"CALL", "CALL_KW"})
_HARMLESS = frozenset({"POP_TOP", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN"})
_OF_AWAIT = frozenset({"GET_AWAITABLE", "SEND", "END_SEND"})
_IN_AWAIT = frozenset({"GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "CACHE"})
"""The instructions at which a function that awaits may be."""
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "SEND"})
"""Those that continue at one other place; ``SEND`` does once what is awaited is done."""
_PASSED = _HARMLESS | _ALWAYS | _OF_AWAIT | PASSED
_LIBRARIES = frozenset({threading.__file__, queue.__file__, futures._base.__file__})  # noqa: SLF001 - the module of futures
_INNER_MAX = 3
_SETTING_ANY = frozenset({"setattr", "__setattr__", "__dict__", "vars"})
"""Code that mentions one of these may set any attribute."""
_MAKING = frozenset({"__init__", "__new__", "__post_init__", "__attrs_post_init__", "__set_name__"})


@dataclass(frozen=True, slots=True)
class PollingLoop:
    """A loop that asks by a method ``asks`` of what ``about`` refers to; ``offsets``: those of its instructions.

    ``waits``: whether the call that asks waits itself. ``caught``: the class of exceptions that the loop catches while that has
    not ended; empty for all classes.
    """

    about: Expression
    asks: str
    offsets: frozenset[int]
    waits: bool = False
    caught: Expression | None = None


def only_asks(code: CodeType, at: int) -> bool:
    """Whether the loops around an offset make no other call than those of such a loop."""
    loop = loop_at(code, at)
    if loop is None:
        return False
    every, around = instructions_of(code), loop_around(code, at)[1]
    return all(every[index].offset in loop.offsets for index in around if every[index].opname in CALLING)


@cached_by_code
def may_ask(code: CodeType) -> bool:
    """Whether a function of the application's may have such a loop."""
    return not (ASKS.keys() | _RAISING.keys()).isdisjoint(code.co_names) and is_application(code)


def may_poll(frames: Sequence[FrameType]) -> bool:
    """Whether a thread may sleep or wait for a time in such a loop."""
    at = _asking_frame(frames)
    return at >= 0 and may_ask(frames[at].f_code)


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
        return frame.f_lasti in self.loop.offsets and value_in(frame, self.loop.about) is self.thing()

    def still_in_thread(self, ident: int) -> Callable[[], bool]:
        """A function that returns whether this thread is still in that loop."""
        return lambda: self.still_in(frames_of_thread(ident))

    def still_asks(self, also: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """What the second look asks: that no other code sets what it asks about (rule 2), and ``also`` this; None: nothing."""
        about = self.loop.about
        if len(about) == 1:
            return also
        return lambda: not is_set_elsewhere(about) and (also is None or also())


def asking_in(frame: FrameType) -> Asking | None:
    """What a frame asks about in such a loop; None if it is in none."""
    loop = loop_at(frame.f_code, frame.f_lasti) if may_ask(frame.f_code) else None
    found = None if loop is None else value_in(frame, loop.about)
    if loop is None or found is None or not _catches(loop, frame) or not is_quiet(frame, loop.offsets, loop.about):
        return None
    return Asking(frame.f_code, loop, OwnRef(found))


def asked_by_thread(frames: Sequence[FrameType]) -> Asking | None:
    """What a thread asks about while it sleeps, or waits with a timeout, in such a loop."""
    at = _asking_frame(frames)
    asking = None if at < 0 else asking_in(frames[at])
    if asking is None or is_interrupted(frames):
        return None
    if at == 0:
        return asking if asking.loop.waits or _sleeps(frames[0]) else None
    waited = variables_of(frames[at - 1])
    is_timed = waited.get("timeout") is not None
    return asking if is_timed and waited.get("self") is asking.thing() else None


def _asking_frame(frames: Sequence[FrameType]) -> int:
    """The frame of the application's that waits, below those of the library that it has called; -1 if there is none."""
    for at, frame in enumerate(frames[: _INNER_MAX + 1]):
        if is_application(frame.f_code):
            return at
        if frame.f_code.co_filename not in _LIBRARIES:
            break
    return -1


def _sleeps(frame: FrameType) -> bool:
    """Whether all that a frame may call at its position, by name, is ``time.sleep()``."""
    names = names_at(frame.f_code, frame.f_lasti)
    known = (frame.f_globals.get(one) for one in names)
    return "sleep" in names and any(one is time or one is time.sleep for one in known)


def is_interrupted(frames: Iterable[FrameType]) -> bool:
    """Rule 3."""
    return any("KeyboardInterrupt" in frame.f_code.co_names for frame in frames if is_application(frame.f_code))


def _catches(loop: PollingLoop, frame: FrameType) -> bool:
    """Whether the ``except`` clause catches what says that it has not ended."""
    if not loop.caught:
        return loop.asks not in _RAISING or loop.caught is not None
    kind = value_of(loop.caught, variables_of(frame), ChainMap(frame.f_globals, vars(builtins)))
    return issubclass(type(kind), type) and issubclass(_RAISING[loop.asks], kind)


# -- the values (rule 2) -----------------------------------------------------------------------------------------------


def value_in(frame: FrameType, about: Expression) -> Any:
    """The value of a variable, or of its attribute, that no other code sets; None if others may (rule 2)."""
    (how, name), *attributes = about or (("", ""),)
    value = _variable_in(frame, name) if how == "name" else None
    for how, name in attributes:
        if value is None or how != "attribute" or _sets_later(type(value), name):
            return None
        value = attribute_of(value, name)
        value = None if value is UNKNOWN else value
    return value


def _variable_in(frame: FrameType, name: str) -> Any:
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


def _sets_later(kind: type, name: str) -> bool:
    """Whether a method of a class, other than those that make an object, sets an attribute."""
    methods = (one for base in kind.__mro__ for one in list(base.__dict__.values()) if type(one) is FunctionType)
    return any(one.__name__ not in _MAKING and name in _attributes_set(one.__code__) for one in methods)


@cached_by_code
def _attributes_set(code: CodeType) -> frozenset[str]:
    every = (one for within in codes_within(code) for one in instructions_of(within))
    return frozenset(str(one.argval) for one in every if one.opname in ("STORE_ATTR", "DELETE_ATTR"))


def is_set_elsewhere(about: Expression) -> bool:
    """Whether code of the program's, other than what makes an object, may set an attribute with such a name.

    It takes long: it is for the second look.
    """
    names = frozenset(str(name) for how, name in about if how == "attribute")
    codes = [one.__code__ for one in census()[0] if one.__name__ not in _MAKING] if names else []
    codes += [frame.f_code for frames in frames_of_threads().values() for frame in frames if names]
    own = (code for code in codes if is_own_code(code) and code.co_name not in _MAKING)
    return any(not (names.isdisjoint(_attributes_set(code)) and _SETTING_ANY.isdisjoint(code.co_names)) for code in own)


# -- the code (rule 1) -------------------------------------------------------------------------------------------------


@cached_by_code
def loop_at(code: CodeType, at: int) -> PollingLoop | None:
    """The loop around the call, or the ``await`` of a call, at an offset, if it is such a loop (rule 1)."""
    every = instructions_of(code)
    flow = ControlFlow(code, every)
    begin = awaited_call(every, flow.at(at))
    begin += every[begin].opname == "PRECALL"
    if every[begin].opname not in _CALLS:
        return None
    try:
        return _Rounds(every, flow, begin).loop()
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return None


class _Rounds:
    """The walk from a call along all ways, until they lead back to it."""

    def __init__(self, every: Sequence[dis.Instruction], flow: ControlFlow, begin: int) -> None:
        self._every = every
        self._flow = flow
        self._begin = begin
        self._asked: tuple[Expression, str] | None = None
        self._caught: Expression | None = None

    def loop(self) -> PollingLoop | None:
        """The loop; None if a way leads out of it, or passes anything else."""
        todo = self._after_call(self._begin, first=True)
        waits = self._asked is not None
        seen = {self._begin}
        comes_back = False
        while todo:
            index = todo.pop()
            comes_back = comes_back or index == self._begin
            if index in seen:
                continue
            seen.add(index)
            after = self._after(index)
            if after is None:
                return None
            todo += after
        if not comes_back or self._asked is None or self._changes(seen):
            return None
        every, ends = self._every, [*(one.offset for one in self._every[1:]), self._every[-1].offset + 2]
        seen.update(_awaiting_after(every, self._begin))
        offsets = frozenset(offset for index in seen for offset in range(every[index].offset, ends[index]))
        about, asks = self._asked
        return PollingLoop(about, asks, offsets, waits, self._caught)

    def _after(self, index: int) -> list[int] | None:
        """The instructions that follow one; None if it may do anything else than rule 1."""
        one = self._every[index]
        if one.opname in _CALLS:
            return self._after_call(index)
        if one.opname in _ALWAYS and is_jump(one):
            return [self._flow.index_of[one.argval]]
        if one.opname in _PASSED or one.opname.startswith(("LOAD_", "POP_JUMP_")):
            return list(self._flow.following(index))
        return None

    def _after_call(self, index: int, *, first: bool = False) -> list[int] | None:
        """The instructions that follow a call; after one that asks, those that do while that has not ended.

        ``first``: it is the one at which the function is, which may wait for a time.
        """
        call = call_at(self._every, index, named=True)
        asked = None if call is None or not call.receiver else (call.receiver, call.name)
        if call is not None and asked is not None and self._is_asking(call):
            found = self._if_not_ended(index, call.name)
            if found is not None and self._asked in (None, asked):
                self._asked = asked
                return [found]
            if not first:
                return None
        return [index + 1] if first or may_be_quiet(self._every, index) else None

    def _is_asking(self, call: Call) -> bool:
        if call.name in _TIMED:
            return bool(call.arguments)
        return call.name in ASKS and not call.arguments

    def _if_not_ended(self, call: int, name: str) -> int | None:
        """Where the function goes on after a call that asks, while that has not ended."""
        if name not in _RAISING:
            return _if_not_ended(self._every, self._flow, _after(self._every, call), ASKS[name])
        clause = self._flow.handler_of.get(call)
        index = -1 if clause is None else clause
        if index < 0 or self._every[index].opname != "PUSH_EXC_INFO":
            return None
        if self._every[index + 1].opname == "POP_TOP":  # ``except:``
            caught: Expression = ()
        else:
            index = next(at for at in range(index, len(self._every)) if self._every[at].opname == "CHECK_EXC_MATCH")
            found = operand_before(self._every, index)
            if found is None or found[1] != _without(self._every, clause or 0):
                return None
            caught, index = found[0], index + 1
        if self._caught not in (None, caught):
            return None
        self._caught = caught
        return index + 1

    def _changes(self, seen: Iterable[int]) -> bool:
        """Whether these instructions set a variable of what they ask about."""
        name = self._asked[0][0][1] if self._asked is not None else ""
        stores = (self._every[index] for index in seen if self._every[index].opname.startswith(("STORE_", "DELETE_")))
        return any(name in (one.argval if type(one.argval) is tuple else (one.argval,)) for one in stores)


def _without(every: Sequence[dis.Instruction], clause: int) -> int:
    """The instruction at which the class of an ``except`` clause begins."""
    index = clause + 1
    while every[index].opname in _HARMLESS:
        index += 1
    return index


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
