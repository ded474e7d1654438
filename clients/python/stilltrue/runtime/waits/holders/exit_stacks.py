"""Reads contextlib's ``ExitStack`` and ``AsyncExitStack``: the exits that one keeps, and the lock being entered through one.

Rules:

1. A party in the block of a stack holds what it has entered through the stack, which keeps the exit of each object until it
   calls it. A ``callback`` may do anything.
2. Only these two classes are known, not classes derived from them.
3. Any other party that has the stack may close it early, whatever its code mentions.
"""

from __future__ import annotations

import contextlib
from collections import deque
from types import FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of

_KINDS = (contextlib.ExitStack, contextlib.AsyncExitStack)
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


def entered_through_stack(frame: FrameType) -> Any:
    """The object that a frame is entering through a stack, or None."""
    if frame.f_code is not _ENTERS or opname_at(frame.f_code, frame.f_lasti) != "CALL":
        return None
    return variables_of(frame).get("cm")
