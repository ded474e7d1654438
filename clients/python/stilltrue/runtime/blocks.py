"""Whether something is entered by a ``with`` block, which leaves it again, or by a call of ``__enter__`` outright."""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType

_BLOCKS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH"})
_ENTERING = frozenset({"__enter__", "__aenter__"})
_NESTED_MAX = 10


def is_entered_by_block() -> bool:
    """Whether who called the function that asks is a ``with`` or ``async with`` block at its beginning.

    An ``__enter__`` that calls another's is a block's if its own caller is.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - documented; this very thread's, so it stands still
    for _ in range(_NESTED_MAX):
        if frame is None or frame.f_code.co_name not in _ENTERING:
            break
        frame = frame.f_back
    return frame is not None and _begins_block(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=10_000)
def _begins_block(code: CodeType, at: int) -> bool:
    before = ""
    for one in dis.get_instructions(code):
        if one.offset == at:
            return one.opname in _BLOCKS or (one.opname == "CALL" and before == "LOAD_SPECIAL")  # as from Python 3.14
        before = one.opname
    return False
