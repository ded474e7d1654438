"""Whether a call of ``acquire()`` waits for as long as it takes, read from its bytecode.

It does without arguments, and with constants that say so: a true ``blocking`` (``block``, for multiprocessing) and a timeout of
``None``. A timeout of -1 means the same for the locks of :mod:`threading`, but no waiting at all for those of multiprocessing.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from typing import Any

_CALLS = frozenset({"CALL", "CALL_KW"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_NAMES = "KW_NAMES"
_BETWEEN = frozenset({"PUSH_NULL", "CACHE", "NOP", "PRECALL"})
_PARAMETERS = ("blocking", "timeout")


def endless_call(every: Sequence[dis.Instruction], attribute: int) -> int | None:
    """The call of the method loaded at ``attribute``, if it waits for as long as it takes."""
    given: list[Any] = []
    named: tuple[str, ...] = ()
    for index in range(attribute + 1, len(every)):
        one = every[index]
        if one.opname in _CALLS:
            if given and type(given[-1]) is tuple:
                named = given.pop()
            return index if one.arg == len(given) and is_endless(given, named) else None
        if one.opname == _NAMES:
            named = one.argval
        elif one.opname in _CONSTANTS:
            given.append(one.argval)
        elif one.opname not in _BETWEEN:
            return None
    return None


def method_called_at(every: Sequence[dis.Instruction], index: int) -> int:
    """The instruction before those that load constants for the call at ``index``."""
    before = index - 1
    while before > 0 and every[before].opname in _BETWEEN | _CONSTANTS | {_NAMES}:
        before -= 1
    return before


def is_endless(given: Sequence[Any], named: Sequence[str] = ()) -> bool:
    """Whether ``acquire()`` with these arguments, of which the last ones are ``named``, waits for as long as it takes."""
    by_place = given[: len(given) - len(named)]
    if len(by_place) > len(_PARAMETERS) or len(named) > len(given):
        return False
    values = dict(zip(_PARAMETERS, by_place, strict=False))
    for name, value in zip(named, given[len(by_place) :], strict=True):
        values["blocking" if name == "block" else name] = value
    return values.keys() <= set(_PARAMETERS) and bool(values.get("blocking", True)) and values.get("timeout") is None
