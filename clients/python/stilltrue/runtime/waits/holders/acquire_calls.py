"""Whether a call of ``acquire()`` waits for as long as it takes, read from its bytecode.

It does without arguments, and with constants that say so, or variables whose values are known: a true ``blocking`` (``block``,
for multiprocessing) and a timeout of ``None``. A timeout of -1 means the same for the locks of :mod:`threading`, but no waiting
at all for those of multiprocessing.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stilltrue.runtime import compat

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
