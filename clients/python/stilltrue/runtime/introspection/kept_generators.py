"""Keeps the generators alive whose frames are read, where Python does not.

In Python 3.13.0 to 3.13.5 the frame object of a generator that was closed outside any ``try`` or ``with`` block still refers to
the generator's memory (gh-125723). Once the generator is gone, to read the frame, or only its code, may end the process.

Rules:

1. While a frame is on its thread's stack, its generator is alive. A ``for`` loop over compiled iterators takes a frame from the
   stack, and the generator is kept before the next call: in between, the interpreter does not switch threads.
2. The generator's address is computed from the address of the frame's data, as verified on a generator of our own. If they are
   laid out differently, nothing is kept.
3. A generator is kept as long as the list that has its frame. Coroutines need not be kept.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, chain, islice, repeat, starmap, takewhile
from operator import is_not
from types import CoroutineType, FrameType
from typing import Any

IS_NEEDED = sys.implementation.name == "cpython" and (3, 13) <= sys.version_info[:3] < (3, 13, 6)
_OF_GENERATOR = 1
"""Owner of the data of a frame: its generator or coroutine."""
_is_frame = partial(is_not, None)
_accumulate: Any = accumulate


class _Data(ctypes.Structure):
    _fields_ = (("words", ctypes.c_size_t * 8), ("height", ctypes.c_int), ("offset", ctypes.c_uint16), ("owner", ctypes.c_int8))


class _Place(ctypes.Union):
    _fields_ = (("data", ctypes.POINTER(_Data)), ("address", ctypes.c_size_t))


class _Frame(ctypes.Structure):
    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t), ("caller", ctypes.c_void_p), ("place", _Place))


class _FrameSlot(ctypes.Union):
    _fields_ = (("frame", ctypes.py_object), ("head", ctypes.POINTER(_Frame)))


class _Slot(ctypes.Union):
    _fields_ = (("address", ctypes.c_size_t), ("thing", ctypes.py_object))


class Frames(list[FrameType]):
    """The frames of a thread, innermost first."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        """The generators to which they belong."""


def frames_with_generators(frames_max: int) -> dict[int, Frames]:
    """The first frames of every other thread, innermost first, by identity, with their generators."""
    distance, own = _distance(), threading.get_ident()
    idents = [ident for ident in sys._current_frames() if ident != own]  # noqa: SLF001 - documented
    innermost = map(dict.get, starmap(sys._current_frames, repeat(())), idents)  # noqa: SLF001 - as above
    outward = map(_accumulate, map(chain, zip(innermost), repeat(repeat("f_back"))), repeat(getattr))
    stacks = map(islice, map(takewhile, repeat(_is_frame), outward), repeat(frames_max))
    found = {ident: Frames() for ident in idents}
    slot, owner = _FrameSlot(), _Slot()
    for ident, frame in chain.from_iterable(map(zip, map(repeat, idents), stacks)):
        thing = None
        slot.frame = frame
        if slot.head[0].place.data[0].owner == _OF_GENERATOR and distance:
            owner.address = slot.head[0].place.address - distance
            thing = owner.thing
        found[ident].append(frame)
        if thing is not None and type(thing) is not CoroutineType:
            found[ident].kept.append(thing)
    return {ident: frames for ident, frames in found.items() if frames}


@functools.lru_cache(maxsize=1)
def _distance() -> int:
    """The distance from a generator to its frame's data, in bytes; 0 if it is unknown (rule 2)."""
    if sys.maxsize < 2**32 or hasattr(sys, "gettotalrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 0
    found = set()
    for suspended in (_stands(), _stands(0, [])):
        next(suspended)
        slot = _FrameSlot(suspended.gi_frame)  # type: ignore[attr-defined]  # it is a generator
        if slot.head[0].place.data[0].owner != _OF_GENERATOR:
            return 0
        found.add(slot.head[0].place.address - id(suspended))
    return found.pop() if len(found) == 1 else 0


def _stands(*_: object) -> Iterator[None]:
    yield
