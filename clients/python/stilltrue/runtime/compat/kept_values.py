"""Reads what a running frame keeps on its stack: Python shows that of suspended coroutines alone.

Rules:

1. The memory is read only where it is laid out as in the versions of CPython known here, which a frame of our own must prove
   first; not in builds that have no global interpreter lock, or are made for debugging; and only where the system lets a
   process read its own memory as a file. Elsewhere nothing is known.
2. The place is one that the frame's code keeps in use at the instruction at which the frame stands, by the compiler's own
   table. That the frame still runs and stands there is asked in the same expression, within which the interpreter lets no
   other thread run, if no collection begins.
3. A frame that an exception leaves points back at the instruction that raised it when its blocks are already left, and
   finalizers may run at that moment: what the place points to may be gone. It is first read as numbers, and taken for an
   object only if it has references and a type as an object has.
"""

from __future__ import annotations

import abc
import ctypes
import dis
import functools
import os
import struct
import sys
from collections.abc import Iterator
from types import BuiltinMethodType, CodeType, FrameType, MethodType
from typing import Any

from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import no_collection

_OWNER_BITS = {(3, 11): 40, (3, 12): 48, (3, 13): 48}
"""By version, where the owner of a frame's data stands in the last word of its head."""
_HEAD = 9
"""Words of a frame's data before its variables."""
_ENDED = 2
"""The owner of the data of a frame that has ended: its frame object."""
_REFERENCES_MAX = 2**31
_TYPES = frozenset({id(type), id(abc.ABCMeta)})
_METHODS = frozenset({id(MethodType), id(BuiltinMethodType)})
_LOCALS_MAX = 10_000
_WORDS = struct.Struct("=qQ")
_MEMORY = "/proc/self/mem"


class _Frame(ctypes.Structure):
    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_size_t),
        ("caller", ctypes.c_void_p),
        ("numbers", ctypes.POINTER(ctypes.c_size_t)),
    )


class _FrameOfObjects(ctypes.Structure):
    _fields_ = (*_Frame._fields_[:3], ("objects", ctypes.POINTER(ctypes.py_object)))


class _Object(ctypes.Structure):
    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t))


def kept_at(frame: FrameType, at: int, depth: int) -> Any:
    """What a frame that stands at the instruction ``at`` keeps at this depth of its stack; None if that cannot be read."""
    return _read(frame, at, depth) if _can_read() else None


def _read(frame: FrameType, at: int, depth: int) -> Any:
    place = _HEAD + _variables(frame.f_code) + depth
    head, objects = _Frame.from_address(id(frame)), _FrameOfObjects.from_address(id(frame))
    owner_bits = _OWNER_BITS[sys.version_info[:2]]
    with no_collection:
        kept = head.numbers[place]
        if not _is_like_an_object(kept):
            return None
        one = _Object.from_address(kept)
        kind = _Object.from_address(one.type)
        return (
            objects.objects[place]
            if frame.f_lasti == at
            and (head.numbers[_HEAD - 1] >> owner_bits) & 0xFF != _ENDED
            and head.numbers[place] == kept
            and 0 < one.references < _REFERENCES_MAX
            and kind.type in _TYPES
            else None
        )


def _is_like_an_object(address: int) -> bool:
    """Rule 3: the memory is read as a file, since that cannot fault."""
    try:
        memory = os.open(_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        references, kind = _WORDS.unpack(os.pread(memory, _WORDS.size, address))
        is_known = kind in _METHODS or _WORDS.unpack(os.pread(memory, _WORDS.size, kind))[1] in _TYPES
    except (OSError, OverflowError, struct.error):
        return False
    finally:
        os.close(memory)
    return is_known and 0 < references < _REFERENCES_MAX


@kept_by_code
def _variables(code: CodeType) -> int:
    """How many variables of all kinds a frame of this code has."""
    count = 0
    while count < _LOCALS_MAX:
        try:
            code._varname_from_oparg(count)  # type: ignore[attr-defined]  # noqa: SLF001 - as dis does
        except IndexError:
            break
        count += 1
    return count


@functools.lru_cache(maxsize=1)
def _can_read() -> bool:
    """Rule 1."""
    is_known = sys.implementation.name == "cpython" and sys.version_info[:2] in _OWNER_BITS and sys.maxsize > 2**32
    if not is_known or hasattr(sys, "gettotalrefcount") or hasattr(sys, "getobjects"):
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    left = _Leave()
    standing = _stands(left)
    next(standing)
    frame = standing.gi_frame  # type: ignore[attr-defined]  # it is a generator
    depths = [one.depth for one in getattr(dis.Bytecode(frame.f_code), "exception_entries", ())]
    return any(depth and _read(frame, frame.f_lasti, depth - 1) is left for depth in depths)


class _Leave:
    """How a block is left: called as it is."""

    def __call__(self, *_: object) -> None:
        """Leave it."""


def _stands(left: _Leave) -> Iterator[object]:
    """Stands in a block that is left so, with variables of all kinds."""

    class Block:
        __exit__ = left

        def __enter__(self) -> list[object]:
            return [left]

    with Block() as entered:
        yield lambda: entered
