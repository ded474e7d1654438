"""What ``ExitStack`` and ``AsyncExitStack`` of contextlib give back when they are left, and which lock is entered through one.

Rules:

1. Who stands in the block of a stack has what it has entered through that: the stack keeps how each is left, from when it has
   been entered until it is left. What was merely told to be called (``callback``) may be anything.
2. Only the classes themselves are known, not what is derived from them.
3. Whoever else has the stack may leave it early, whatever its code says.
"""

from __future__ import annotations

import contextlib
import dis
from collections import deque
from types import FrameType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of

_KINDS = (contextlib.ExitStack, contextlib.AsyncExitStack)
_ENTERS = contextlib.ExitStack.enter_context.__code__


def is_stack(thing: Any) -> bool:
    """Whether it is such a stack (rule 2)."""
    return type(thing) in _KINDS


def exits_in(stack: Any) -> list[Any]:
    """How what has been entered through a stack is left, innermost last."""
    kept = attribute_of(stack, "_exit_callbacks")
    if type(kept) is not deque:
        return []
    return [one[1] for one in tuple(kept) if type(one) is tuple and len(one) == 2]


def entered_through_stack(frame: FrameType) -> Any:
    """What a frame enters through a stack just now; None if it does not."""
    if frame.f_code is not _ENTERS or dis.opname[frame.f_code.co_code[frame.f_lasti]] != "CALL":
        return None
    return variables_of(frame).get("cm")
