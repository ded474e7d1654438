"""Reads what a running frame keeps on its stack: Python shows that of suspended coroutines alone.

Rules:

1. The memory is read only where it is laid out as in the versions of CPython known here, which a frame of our own must prove
   first; not in builds that have no global interpreter lock, or are made for debugging. Elsewhere nothing is known.
2. The place is one that the frame's code keeps in use at the instruction at which the frame stands, by the compiler's own
   table. That it still stands there is asked in the same expression, within which the interpreter lets no other thread run,
   if no collection begins.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import no_collection

_VERSIONS = frozenset({(3, 11), (3, 12), (3, 13)})
_HEAD = 9
"""Words of a frame's data before its variables."""
_LOCALS_MAX = 10_000


class _Frame(ctypes.Structure):
    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("kind", ctypes.c_void_p),
        ("caller", ctypes.c_void_p),
        ("data", ctypes.POINTER(ctypes.py_object)),
    )


def kept_at(frame: FrameType, at: int, depth: int) -> Any:
    """What a frame that stands at the instruction ``at`` keeps at this depth of its stack; None if that cannot be read."""
    return _read(frame, at, depth) if _can_read() else None


def _read(frame: FrameType, at: int, depth: int) -> Any:
    memory, place = _Frame.from_address(id(frame)), _HEAD + _variables(frame.f_code) + depth
    with no_collection:
        try:
            return memory.data[place] if frame.f_lasti == at else None
        except ValueError:  # nothing is kept there
            return None


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
    is_known = sys.implementation.name == "cpython" and sys.version_info[:2] in _VERSIONS and sys.maxsize > 2**32
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
