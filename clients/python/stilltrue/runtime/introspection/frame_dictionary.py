"""Reads a frame's variables as if nobody had. For Python 3.10 to 3.12, where a frame keeps a dictionary of them.

After each call of a trace or profile function written in Python, the interpreter writes that dictionary back into the
variables: in Python 3.10 always, later if the frame is marked because somebody has asked for it. If a reader emptied the
dictionary meanwhile, or left the mark, the application would lose its variables. No other thread sees which functions a thread
has set.

Rules:

1. A dictionary that was filled before, or a mark that was there, stays. Otherwise the dictionary is emptied, and the mark is
   removed.
2. From the question to the end there is no call but ``clear``, so the interpreter does not switch threads.
3. Memory is read, and the mark (one byte) written, only if it is laid out as in the CPython versions listed here, which is
   verified on a frame of our own; otherwise the dictionary stays. It is the memory of the frame object, which the reader refers
   to, of its data, to which it always points, and of its dictionary. The pointers are read anew at each use.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

_BEFORE = {(3, 10): 7, (3, 11): 3, (3, 12): 5}
"""By version, the number of words before the pointer to the dictionary: in the frame object, since Python 3.11 in its data."""
_IS_KNOWN = sys.implementation.name == "cpython" and sys.version_info[:2] in _BEFORE and sys.maxsize > 2**32
_WORDS = _BEFORE.get(sys.version_info[:2], 0)
_HAS_MARK = sys.version_info >= (3, 11)


class _Dictionary(ctypes.Structure):
    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t), ("length", ctypes.c_ssize_t))


class _Holder(ctypes.Structure):
    _fields_ = (("before", ctypes.c_size_t * _WORDS), ("names", ctypes.POINTER(_Dictionary)))


class _Frame(ctypes.Structure):
    _fields_ = (
        ("before", ctypes.c_size_t * 3),
        ("data", ctypes.POINTER(_Holder)),
        ("trace", ctypes.c_size_t),
        ("line", ctypes.c_int),
        ("flags", ctypes.c_char * 2),
        ("is_marked", ctypes.c_bool),
    )


class _Slot(ctypes.Union):
    """A frame, the ``holder`` of whose dictionary it shows: ``holder[0]`` or, since Python 3.11, ``head[0].data[0]``."""

    _fields_ = (("frame", ctypes.py_object), ("holder", ctypes.POINTER(_Holder)), ("head", ctypes.POINTER(_Frame)))


def variables_left_as_they_were(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables by name."""
    if not can_restore():
        return dict(frame.f_locals)
    slot: Any = _Slot(frame)
    if _HAS_MARK:  # from here on rule 2
        kept, is_marked = slot.head[0].data[0].names, slot.head[0].is_marked
    else:
        kept, is_marked = slot.holder[0].names, False
    is_empty = not (is_marked or (kept and kept[0].length))  # at once: ``kept`` shows the frame's pointer as it is when asked
    names = frame.f_locals
    found = {**names}
    if not is_marked and _HAS_MARK:
        slot.head[0].is_marked = False
    if is_empty:
        names.clear()
    return found


@functools.lru_cache(maxsize=1)
def can_restore() -> bool:
    """Rule 3."""
    if not _IS_KNOWN or hasattr(sys, "gettotalrefcount") or hasattr(sys, "getobjects"):
        return False
    standing: Any = _stands(0, [])
    next(standing)
    frame = standing.gi_frame
    slot: Any = _Slot(frame)
    holder, head = (slot.head[0].data[0], slot.head[0]) if _HAS_MARK else (slot.holder[0], None)
    if holder.names or (head is not None and head.is_marked):
        return False
    names = frame.f_locals
    is_there = ctypes.addressof(holder.names[0]) == id(names) and holder.names[0].length == len(names)
    return is_there and (head is None or head.is_marked)


def _stands(_first: int, _second: object) -> Iterator[None]:
    """Suspends with variables, of which there is no dictionary. Its frame has no caller, which it would keep."""
    yield
