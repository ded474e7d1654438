"""Whether a call of ``acquire()`` waits for as long as it takes, read from its bytecode.

It does without arguments, and with constants that say so, or variables whose values are known: a true ``blocking`` (``block``,
for multiprocessing) and a timeout of ``None``. A timeout of -1 means the same for the locks of :mod:`threading`, but no waiting
at all for those of multiprocessing.

Any other arguments (``timeout=-1 if deadline is None else deadline - time()``) are read from the stack of the frame that calls.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from types import BuiltinMethodType, CodeType, FrameType, MappingProxyType, MethodDescriptorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.bytecode.stack_heights import kept_in_call
from stilltrue.runtime.introspection.code_cache import cached_by_code

_CALLS = frozenset({"CALL", "CALL_KW"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_NAMES = "KW_NAMES"
_LOADS = "LOAD_FAST"
_PLAIN = (bool, int, float, type(None))
_BETWEEN = frozenset({"PUSH_NULL", "CACHE", "NOP", "PRECALL"})
_PARAMETERS = ("blocking", "timeout")


def endless_call(
    every: Sequence[dis.Instruction], attribute: int, names: Mapping[str, Any] = MappingProxyType({}), lock: Any = None
) -> int | None:
    """The call of the method loaded at ``attribute``, if it waits for as long as it takes.

    ``names``: the values of variables that it may be given; ``lock``: that which it acquires, if known.
    """
    given: list[Any] = []
    named: tuple[str, ...] = ()
    for index in range(attribute + 1, len(every)):
        one = every[index]
        if one.opname in _CALLS:
            if given and type(given[-1]) is tuple:
                named = given.pop()
            endless = one.arg == len(given) and is_endless(given, named, waits_at_minus_one=is_of_threading(lock))
            return index if endless else None
        if one.opname == _NAMES:
            named = one.argval
        elif one.opname in _CONSTANTS:
            given.append(one.argval)
        elif one.opname.startswith(_LOADS) and all(name in names for name in _loaded(one)):
            given += [names[name] for name in _loaded(one)]
        elif one.opname not in _BETWEEN:
            return None
    return None


def method_called_at(every: Sequence[dis.Instruction], index: int) -> int:
    """The instruction before those that load constants or variables for the call at ``index``."""
    before = index - 1
    while before > 0 and (every[before].opname in _BETWEEN | _CONSTANTS | {_NAMES} or every[before].opname.startswith(_LOADS)):
        before -= 1
    return before


def _loaded(one: dis.Instruction) -> tuple[str, ...]:
    """The variables that an instruction loads."""
    return one.argval if type(one.argval) is tuple else (one.argval,)


def lock_waited_for(frame: FrameType) -> Any:
    """The lock of :mod:`threading` whose ``acquire()`` a frame calls so, as its stack shows twice; None if unknown."""
    lock = _lock_called(frame)
    return lock if lock is not None and _lock_called(frame) is lock else None


def _lock_called(frame: FrameType) -> Any:
    code, at = frame.f_code, frame.f_lasti
    call, kept = _call_at(code, at), kept_in_call(code, at, compiled=True)
    if call is None or kept is None:
        return None
    count, named = call
    if named is None:
        kept -= 1
        named = compat.stack_value_at(frame, at, kept)
    given = [compat.stack_value_at(frame, at, kept - count + index) for index in range(count)]
    first, second = (compat.stack_value_at(frame, at, kept - count - below) for below in (2, 1))
    lock = second if type(first) is MethodDescriptorType and first.__name__ == "acquire" else None
    for one in (first, second):
        if type(one) is BuiltinMethodType and one.__name__ == "acquire":
            lock = one.__self__
    if not is_of_threading(lock) or type(named) is not tuple or any(one is None for one in given):
        return None
    return lock if is_endless(given, named, waits_at_minus_one=True) else None


@cached_by_code
def _call_at(code: CodeType, at: int) -> tuple[int, tuple[str, ...] | None] | None:
    """The number of arguments of the call at ``at``, and the names of the last ones (None: they are on the stack, too)."""
    every = tuple(instructions(code))
    index = next((number for number, one in enumerate(every) if one.offset == at), len(every))
    if index < len(every) and every[index].opname == "PRECALL":
        index += 1
    if index >= len(every) or every[index].opname not in _CALLS:
        return None
    count = every[index].arg or 0
    if every[index].opname == "CALL_KW":
        return count, None
    before = index - 1
    while every[before].opname in ("PRECALL", "CACHE"):
        before -= 1
    return count, every[before].argval if every[before].opname == _NAMES else ()


def is_of_threading(lock: Any) -> bool:
    """Whether it is a lock of :mod:`threading`."""
    return compat.module_of(type(lock)) == "_thread"


def is_endless(given: Sequence[Any], named: Sequence[str] = (), *, waits_at_minus_one: bool = False) -> bool:
    """Whether ``acquire()`` with these arguments, of which the last ones are ``named``, waits for as long as it takes.

    ``waits_at_minus_one``: so does a timeout of -1.
    """
    if not all(type(one) in _PLAIN for one in given):
        return False
    by_place = given[: len(given) - len(named)]
    if len(by_place) > len(_PARAMETERS) or len(named) > len(given):
        return False
    values = dict(zip(_PARAMETERS, by_place, strict=False))
    for name, value in zip(named, given[len(by_place) :], strict=True):
        values["blocking" if name == "block" else name] = value
    timeout = values.get("timeout")
    endless = timeout is None or (waits_at_minus_one and timeout == -1)
    return values.keys() <= set(_PARAMETERS) and bool(values.get("blocking", True)) and endless
