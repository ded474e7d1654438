"""Reads contextlib's ``ExitStack`` and ``AsyncExitStack``: the exits that one keeps, and the lock being entered through one.

Rules:

1. A party in the block of a stack holds what it has entered through the stack, which keeps the exit of each object until it
   calls it. So it does a lock whose ``release`` it has given to ``callback``; any other ``callback`` may do anything.
2. Only these two classes are known, not classes derived from them.
3. Any other party that has the stack may close it early, whatever its code mentions.
"""

from __future__ import annotations

import contextlib
from collections import deque
from types import FrameType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.holders.with_blocks import METHODS

_KINDS = (contextlib.ExitStack, contextlib.AsyncExitStack)
_STACK: Any = contextlib.ExitStack
_CALLS_BACK = _STACK._create_cb_wrapper(bool).__code__  # noqa: SLF001 - it has no public name
"""The exit that stands for a callback."""
_ENTERS = contextlib.ExitStack.enter_context.__code__


def is_stack(thing: Any) -> bool:
    """Whether it is an exit stack (rule 2)."""
    return type(thing) in _KINDS


def exits_in(stack: Any) -> list[Any]:
    """The exits that a stack keeps, innermost last."""
    kept = attribute_of(stack, "_exit_callbacks")
    if type(kept) is not deque:
        return []
    return [one[1] for one in tuple(kept) if type(one) is tuple and len(one) == 2]


def released_by(leaving: Any) -> Any:
    """The object whose ``release``, given to ``callback``, is in place of an exit; None for any other exit."""
    if type(leaving) is not FunctionType or leaving.__code__ is not _CALLS_BACK:
        return None
    kept = dict(zip(_CALLS_BACK.co_freevars, compat.bound_to(leaving), strict=True))
    called = kept["callback"]
    is_release = type(called) in METHODS and called.__name__ == "release" and not kept["args"] and not kept["kwds"]
    return called.__self__ if is_release else None


def entered_through_stack(frame: FrameType) -> Any:
    """The object that a frame is entering through a stack, or None."""
    if frame.f_code is not _ENTERS or opname_at(frame.f_code, frame.f_lasti) != "CALL":
        return None
    return variables_of(frame).get("cm")
