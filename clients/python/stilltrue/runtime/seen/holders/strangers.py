"""Whether a function of an installed package may have given back a lock that its callers have: read from what it releases.

Rules:

1. What it releases must be known: each expression on which its code calls ``release`` has a value now. A variable that has not
   been set yet has released nothing.
2. It may have given back the lock that such a value is, or has as an attribute; and any that its variables still mean, or what
   lists, tuples, sets and dictionaries of these hold.
3. So may it have by a ``release`` that is the application's, or a class's whose code is not Python: that may do anything.
4. Nothing is said of the package that has taken the lock itself: it may know it by other names.
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
from stilltrue.runtime.look.enders.reach import named_by
from stilltrue.runtime.seen.holders.blocks import Expression, instructions_of, value_of
from stilltrue.runtime.seen.left.balance import uses_of
from stilltrue.runtime.seen.left.census import codes_within, root_of
from stilltrue.runtime.seen.waits.locks import lock_of

_RELEASE = "release"
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)


def may_give_back(frame: FrameType, lock: Any, taker: CodeType) -> bool:
    """Whether a frame, whose code speaks of releasing, may have given back the lock that ``taker`` has taken."""
    own = {"", root_of(taker)}
    if root_of(frame.f_code) in own:
        return True
    names = variables_of(frame)
    return _is_among(lock, names.values()) or any(
        _may_be(_value(code, expression, frame, names), lock, own)
        for code in codes_within(frame.f_code)
        for expression in uses_of(code).of_others
    )


def _value(code: CodeType, expression: Expression, frame: FrameType, names: Mapping[str, Any]) -> Any:
    """What a code, the frame's or one within it, means by an expression; None where it means nothing yet (rule 1)."""
    first = expression[0][1] if expression else ""
    if first in code.co_varnames and first not in code.co_freevars:
        if code is not frame.f_code:
            return UNKNOWN
        if first not in names:
            return UNKNOWN if _is_dropped(code, first) else None
    return value_of(expression, names, frame.f_globals)


def _is_dropped(code: CodeType, name: str) -> bool:
    """Whether a code also unsets a variable."""
    return any(one.opname.startswith("DELETE_") and one.argval == name for one in instructions_of(code))


def _is_among(lock: Any, values: Collection[Any]) -> bool:
    """Whether a lock is one of some values, or of the items of these (rule 2)."""
    things = [*values, *(item for one in values if issubclass(type(one), _CONTAINERS) for item in named_by(one) or ())]
    return any(lock_of(one) is lock for one in things)


def _may_be(value: Any, lock: Any, own: set[str]) -> bool:
    """Whether releasing a value may give back the lock."""
    if value is None:
        return False
    known = lock_of(value)
    if known is not None:
        return known is lock
    return value is UNKNOWN or not _is_strangers(value, own) or any(lock_of(one) is lock for one in _parts(value))


def _is_strangers(value: Any, own: set[str]) -> bool:
    """Whether the ``release`` of a value is a package's (rule 3)."""
    if attribute_of(value, _RELEASE) is not UNKNOWN:
        return False
    method = next((kind.__dict__[_RELEASE] for kind in type(value).__mro__ if _RELEASE in kind.__dict__), None)
    return type(method) is FunctionType and is_application(method.__code__) and root_of(method.__code__) not in own


def _parts(thing: Any) -> list[Any]:
    return [*attributes_of(thing), *gc.get_referents(thing)]
