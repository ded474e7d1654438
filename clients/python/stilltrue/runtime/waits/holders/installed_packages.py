"""Decides whether a function of an installed package may have released a lock that its callers hold.

Rules:

1. The objects it releases must be known: each expression on which its code calls ``release`` has a value now. A variable that
   is not set yet has released nothing.
2. It may have released a lock that is such a value or an attribute of one, and any lock that its variables refer to, directly
   or in a list, tuple, set or dictionary.
3. A ``release`` of the application, or of a class that is not written in Python, may do anything.
4. The package that has acquired the lock itself may always have released it, as it may know the lock by other names.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, attributes_of
from stilltrue.runtime.look.ways_out.reach import named_by
from stilltrue.runtime.waits.holders.with_blocks import Expression, instructions_of, value_of
from stilltrue.runtime.waits.orphaned_locks.balance import uses_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within, root_of
from stilltrue.runtime.waits.resolvers.locks import lock_of

_RELEASE = "release"
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)


def may_release(frame: FrameType, lock: Any, taker: CodeType) -> bool:
    """Whether a frame whose code mentions releasing may have released the lock that ``taker`` has acquired."""
    own = {"", root_of(taker)}
    if root_of(frame.f_code) in own:
        return True
    names = variables_of(frame)
    return _is_among(lock, names.values()) or any(
        _may_be(_value(code, expression, frame, names), lock, own)
        for code in codes_within(frame.f_code)
        for expression in uses_of(code).unowned
    )


def _value(code: CodeType, expression: Expression, frame: FrameType, names: Mapping[str, Any]) -> Any:
    """The value of an expression in the frame's code, or in code within it; None if it has no value yet (rule 1)."""
    first = expression[0][1] if expression else ""
    if first in code.co_varnames and first not in code.co_freevars:
        if code is not frame.f_code:
            return UNKNOWN
        if first not in names:
            return UNKNOWN if _is_dropped(code, first) else None
    return value_of(expression, names, frame.f_globals)


def _is_dropped(code: CodeType, name: str) -> bool:
    """Whether a code object deletes a variable."""
    return any(one.opname.startswith("DELETE_") and one.argval == name for one in instructions_of(code))


def _is_among(lock: Any, values: Collection[Any]) -> bool:
    """Whether a lock is one of the values or of their items (rule 2)."""
    things = [*values, *(item for one in values if issubclass(type(one), _CONTAINERS) for item in named_by(one) or ())]
    return any(lock_of(one) is lock for one in things)


def _may_be(value: Any, lock: Any, own: set[str]) -> bool:
    """Whether releasing a value may release the lock."""
    if value is None:
        return False
    known = lock_of(value)
    if known is not None:
        return known is lock
    return value is UNKNOWN or not _is_packages_own(value, own) or any(lock_of(one) is lock for one in _parts(value))


def _is_packages_own(value: Any, own: set[str]) -> bool:
    """Whether a value's ``release`` is a method of another package, written in Python (rule 3)."""
    if attribute_of(value, _RELEASE) is not UNKNOWN:
        return False
    method = next((kind.__dict__[_RELEASE] for kind in type(value).__mro__ if _RELEASE in kind.__dict__), None)
    return type(method) is FunctionType and is_application(method.__code__) and root_of(method.__code__) not in own


def _parts(thing: Any) -> list[Any]:
    return [*attributes_of(thing), *gc.get_referents(thing)]
