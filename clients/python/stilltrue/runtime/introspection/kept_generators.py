"""Keeps the generators alive whose frames are read, where Python does not.

In Python 3.13.0 to 3.13.5 the frame object of a generator that was closed outside any ``try`` or ``with`` block still refers to
the generator's memory (gh-125723). Once the generator is gone, to read the frame, or only its code, may end the process.

Rules:

1. While a frame is on its thread's stack, its generator is alive. From where a frame is taken from the stack to where its
   generator is kept there is no call and no jump back: in between, the interpreter does not switch threads. Nor does it before
   a frame that is to be left out is dropped.
2. The generator's address is computed from the address of the frame's data, as verified on a generator of our own. If they are
   laid out differently, nothing is kept.
3. A generator is kept as long as the list that has its frame. Coroutines need not be kept.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Container, Iterator
from itertools import repeat, starmap
from types import CodeType, CoroutineType, FrameType
from typing import Any

IS_NEEDED = sys.implementation.name == "cpython" and (3, 13) <= sys.version_info[:3] < (3, 13, 6)
_OF_GENERATOR = 1
"""Owner of the data of a frame: its generator or coroutine."""


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


def frames_with_generators(frames_max: int, left_out: Container[CodeType]) -> dict[int, Frames | None]:
    """The first frames of every other thread, innermost first, by identity, with their generators.

    None for a thread whose innermost frame runs one of the functions ``left_out``: no reference to its frames is kept.
    """
    distance, own = _distance(), threading.get_ident()
    idents = [ident for ident in sys._current_frames() if ident != own]  # noqa: SLF001 - documented
    found: dict[int, Frames | None] = {}
    slot, owner, index = _FrameSlot(), _Slot(), 0
    frame: FrameType | None
    for frame in map(dict.get, starmap(sys._current_frames, repeat(())), idents):  # noqa: SLF001 - as above
        ident, inner, depth = idents[index], None, 0
        index += 1
        if frame is not None and frame.f_code in left_out:
            frame = inner = None  # noqa: PLW2901 - rule 1
            found[ident] = None
            continue
        frames: Frames | None = None
        while depth < frames_max:
            if inner is not None:
                frame = inner.f_back  # noqa: PLW2901 - the next one outward
            if frame is None:
                break
            thing = None
            slot.frame = frame
            if slot.head[0].place.data[0].owner == _OF_GENERATOR and distance:
                owner.address = slot.head[0].place.address - distance
                thing = owner.thing
            if frames is None:
                frames = found[ident] = Frames()
            frames.append(frame)
            if thing is not None and type(thing) is not CoroutineType:
                frames.kept.append(thing)
            inner = frame
            depth += 1
    return found


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
