"""Detects whether a context manager was entered by a ``with`` block, which will exit it, or by an explicit ``__enter__()``."""

from __future__ import annotations

import functools
from types import CodeType

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.introspection.frames import first_caller_outside

_BLOCKS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH"})
_ENTERING = frozenset({"__enter__", "__aenter__"})


def is_entered_by_block() -> bool:
    """Whether the function that calls this one was called by a ``with`` or ``async with`` statement.

    An ``__enter__`` that delegates to another counts as its own caller does.
    """
    frame = first_caller_outside(_ENTERING)
    return frame is not None and _begins_block(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=10_000)
def _begins_block(code: CodeType, offset: int) -> bool:
    previous = ""
    for instruction in instructions(code):
        name = instruction.opname
        if instruction.offset == offset:
            return name in _BLOCKS or (name == "CALL" and previous == "LOAD_SPECIAL")  # the latter since Python 3.14
        previous = name
    return False
