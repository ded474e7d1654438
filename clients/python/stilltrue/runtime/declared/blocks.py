"""Decides whether a context manager was entered by a ``with`` block, which will exit it, or by an explicit ``__enter__()``."""

from __future__ import annotations

import dis
import functools
from types import CodeType

from stilltrue.runtime.introspection.frames import caller_beyond

_BLOCKS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH"})
_ENTERING = frozenset({"__enter__", "__aenter__"})


def is_entered_by_block() -> bool:
    """Whether the caller of the calling function is a ``with`` or ``async with`` block at its beginning.

    An ``__enter__`` that calls another's is a block's if its own caller is.
    """
    frame = caller_beyond(_ENTERING)
    return frame is not None and _begins_block(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=10_000)
def _begins_block(code: CodeType, at: int) -> bool:
    before = ""
    for one in dis.get_instructions(code):
        if one.offset == at:
            return one.opname in _BLOCKS or (one.opname == "CALL" and before == "LOAD_SPECIAL")  # as from Python 3.14
        before = one.opname
    return False
