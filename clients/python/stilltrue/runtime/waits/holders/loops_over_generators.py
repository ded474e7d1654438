"""Finds the suspended generators over which a frame iterates, and which nobody else has.

Rules:

1. The iterator of a ``for`` loop is on the stack of its frame; a suspended coroutine refers to what is on its stack, also to
   the asynchronous generator of an ``async for`` loop.
2. If that is the only reference, nobody but the frame's party can resume or close the generator, so what its blocks hold is
   held until that party goes on. A loop refers weakly to its asynchronous generators, to close them in the end.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import AsyncGeneratorType, CodeType, FrameType, GeneratorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.bytecode.stack_heights import heights_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application

_GENERATORS = (GeneratorType, AsyncGeneratorType)
_RUNNING = ("gi_running", "ag_running")
_ASKS_AGAIN = frozenset({"FOR_ITER", "GET_ANEXT"})


def iterated_by(frame: FrameType, coroutine: Any) -> Iterator[Any]:
    """The generators of a frame's loops that only it has; ``coroutine``: the frame's own, if it is suspended."""
    if not is_application(frame.f_code) or not _iterates(frame.f_code):
        return
    if coroutine is None:
        found = [compat.stack_value_at(frame, frame.f_lasti, depth) for depth in _iterators_at(frame.f_code, frame.f_lasti)]
    else:
        found = list(dict.fromkeys(one for one in compat.referred_to_by_coroutine(coroutine) if type(one) in _GENERATORS))
    while found:
        if type(found[-1]) in _GENERATORS and _is_held_once(found) and not _runs(found[-1]):
            yield found[-1]
        found.pop()


@cached_by_code
def _iterates(code: CodeType) -> bool:
    return any(one.opname in _ASKS_AGAIN for one in instructions(code))


@cached_by_code
def _iterators_at(code: CodeType, at: int) -> tuple[int, ...]:
    """The stack indices of the iterators of the loops in whose body an instruction is."""
    heights = heights_of(code) or {}
    loops = [one.offset for one in instructions(code) if one.opname == "FOR_ITER" and one.offset < at < one.argval]
    return tuple(heights[one] - 1 for one in loops if one in heights)


def _is_held_once(found: list[Any]) -> bool:
    """Whether the last one has one more reference than those of this module, and no weak one but its loop's."""
    weak = 1 if type(found[-1]) is AsyncGeneratorType else 0
    return sys.getrefcount(found[-1]) - _OURS == 1 and weakref.getweakrefcount(found[-1]) <= weak


def _runs(generator: Any) -> bool:
    return any(getattr(generator, name, False) is True for name in _RUNNING)


_calibration = [object()]
_OURS = sys.getrefcount(_calibration[-1])
"""The references from the list and the call itself."""
