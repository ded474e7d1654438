"""Reads the value stack of a running frame; Python itself exposes only that of suspended coroutines.

Rules:

1. Memory is read only if it is laid out as in the CPython versions listed here, which is verified on a frame of our own; not in
   free-threaded or debug builds; and only if the system lets a process read its own memory as a file. Otherwise nothing is
   known.
2. The slot must be one that the frame's code keeps in use at the current instruction, according to the compiler's own table.
   The same expression checks that the frame still runs and stands there; within it the interpreter does not switch threads
   unless a collection begins.
3. A frame that an exception leaves points back at the raising instruction when its blocks are already left, and finalizers may
   run then: the object in the slot may be gone. The slot is first read as numbers, and used as an object only if it has a
   plausible reference count and type.
4. The frame object, to which the reader refers, always points to its frame's data, and that pointer is read anew at each use. A
   frame that has not ended has a reference to what a slot in use holds. Only in the case of rule 3 may the slot's address be
   stale: then its memory has just been read through the file, and is read again before any other thread can run. If it was
   returned to the system in between, the process ends; nothing but a finalizer in that very frame can make it so.
"""

from __future__ import annotations

import abc
import ctypes
import dis
import functools
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinMethodType, CodeType, FrameType, MethodType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import caller_of, no_collection
from stilltrue.runtime.own_ref import OwnRef

_OWNER_BITS = {(3, 11): 40, (3, 12): 48, (3, 13): 48}
"""By version, the position of a frame's owner field in the last header word."""
_OWNER_BIT = _OWNER_BITS.get(sys.version_info[:2], 0)
_FUNCTION = {(3, 11): 0, (3, 12): 2, (3, 13): 2}
"""By version, the position of the reference to the function."""
_CALLER = 1
"""Since 3.12: that of the pointer to the caller's data. What a compiled function calls points to a frame on C's stack."""
_ON_C_STACK = 3
"""Owner of such a frame."""
_ENTRY_BIT = 32
"""In 3.11, the position of the flag for what a compiled function calls, in the last header word."""
_HEAD = 9
"""Header words before the variables."""
_ENDED = 2
"""Owner of the data of a finished frame: its frame object."""
_REFERENCES_MAX = 2**31
_TYPES = frozenset({id(type), id(abc.ABCMeta)})
_METHODS = frozenset({id(MethodType), id(BuiltinMethodType)})
_METHODS_MAX = 10_000
_methods: dict[int, OwnRef] = {}
"""By address, the methods found so far: one that still lives need not be read again."""
_ENDLESS = {id(one): one for one in (True, False, *range(-5, 257))}
"""By address, values that are never released; since 3.12 their reference counts are not plausible ones."""
_LOCALS_MAX = 10_000
_WORDS = struct.Struct("=qQ")
_MEMORY = "/proc/self/mem"
_opened: dict[int, int | None] = {}
"""By thread that is in :func:`memory_kept_open`, the descriptor of the memory; None until it is needed."""


class _Frame(ctypes.Structure):
    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_size_t),
        ("caller", ctypes.c_void_p),
        ("numbers", ctypes.POINTER(ctypes.c_size_t)),
    )


class _FrameOfObjects(ctypes.Structure):
    _fields_ = (*_Frame._fields_[:3], ("objects", ctypes.POINTER(ctypes.py_object)))


class _Type(ctypes.Structure):
    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t))


class _Object(ctypes.Structure):
    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.POINTER(_Type)))


def stack_value_at(frame: FrameType, at: int, depth: int) -> Any:
    """The value at this depth of the stack of a frame that is at instruction ``at``; None if it cannot be read."""
    return _read(frame, at, depth) if _can_read() else None


@contextmanager
def memory_kept_open() -> Iterator[None]:
    """Open the memory at most once for all reads of this thread within the block."""
    own = threading.get_ident()
    if own in _opened:
        yield
        return
    _opened[own] = None
    try:
        yield
    finally:
        memory = _opened.pop(own, None)
        if memory is not None:
            os.close(memory)


def _close_in_child() -> None:
    """In a forked child the descriptors show the parent's memory."""
    for memory in _opened.values():
        if memory is not None:
            os.close(memory)
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def frame_references(frame: FrameType, kept: int = 0) -> tuple[int, list[tuple[str, int]]] | None:
    """The identities a thread's frame refers to: its function and its variables (or cells); None if they cannot be read.

    ``kept``: the number of stack slots in use that are read as well, without names. Nothing is used as an object: an identity
    may be stale if the frame has run meanwhile.
    """
    if not _can_read():
        return None
    head, count = _Frame.from_address(id(frame)), _variables(frame.f_code)
    names = [*map(_name_of(frame.f_code), range(count)), *[""] * kept]
    with no_collection:
        function = head.numbers[_FUNCTION[sys.version_info[:2]]]
        places = [(name, head.numbers[_HEAD + index]) for index, name in enumerate(names)]
    return function, places


def is_called_inline(called: FrameType) -> bool | None:
    """Whether the interpreter itself has called the code of a thread's frame, which took its arguments over from its caller.

    False: a compiled function has called it. None if unknown, or if it has run meanwhile. It must have a caller.
    """
    caller = caller_of(called)
    if caller is None or not _can_read():
        return None
    data, callers = _Frame.from_address(id(called)), _Frame.from_address(id(caller))
    with no_collection:
        last, previous = data.numbers[_HEAD - 1], data.numbers[_CALLER]
        of_caller = ctypes.addressof(callers.numbers.contents)
    if sys.version_info < (3, 12):
        return not (last >> _ENTRY_BIT) & 0xFF
    if previous == of_caller:
        return True
    between = _numbers_at(previous + 8 * (_HEAD - 1))
    return False if between is not None and (between[0] >> _OWNER_BIT) & 0xFF == _ON_C_STACK else None


def _name_of(code: CodeType) -> Callable[[int], str]:
    found: Callable[[int], str] = code._varname_from_oparg  # type: ignore[attr-defined]  # noqa: SLF001 - as dis does
    return found


def _read(frame: FrameType, at: int, depth: int) -> Any:
    place = _HEAD + _variables(frame.f_code) + depth
    head, objects = _Frame.from_address(id(frame)), _FrameOfObjects.from_address(id(frame))
    numbers, values = head.numbers, objects.objects  # each is a view of the frame's own pointer, which is read at each use
    with no_collection:
        kept = numbers[place]
        if kept in _ENDLESS:
            return _ENDLESS[kept] if frame.f_lasti == at and numbers[place] == kept else None
        known = _methods.get(kept)
        found = None if known is None else known()
        if found is not None:  # so this is the object at that address
            is_there = numbers[place] == kept and (numbers[_HEAD - 1] >> _OWNER_BIT) & 0xFF != _ENDED
            return found if frame.f_lasti == at and is_there else None
        if not _is_like_an_object(kept):
            return None
        one = _Object.from_address(
            kept
        )  # other threads have run since it was looked at: it is read only where the slot is checked
        found = (
            values[place]
            if frame.f_lasti == at
            and (numbers[_HEAD - 1] >> _OWNER_BIT) & 0xFF != _ENDED
            and numbers[place] == kept
            and 0 < one.references < _REFERENCES_MAX
            and one.type[0].type in _TYPES
            else None
        )
        if id(type(found)) in _METHODS:
            if len(_methods) >= _METHODS_MAX:
                _methods.clear()
            _methods[kept] = OwnRef(found)
        return found


def _is_like_an_object(address: int) -> bool:
    """Rule 3."""
    references, kind = _numbers_at(address) or (0, 0)
    is_known = kind in _METHODS or (_numbers_at(kind) or (0, 0))[1] in _TYPES
    return is_known and 0 < references < _REFERENCES_MAX


def _numbers_at(address: int) -> tuple[int, int] | None:
    """The two words at an address; None if there is no memory. It is read as a file, since that cannot fault."""
    own = threading.get_ident()
    memory = _opened.get(own)
    if memory is None:
        try:
            memory = os.open(_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
    is_kept = own in _opened
    if is_kept:
        _opened[own] = memory
    try:
        first, second = _WORDS.unpack(os.pread(memory, _WORDS.size, address))
    except (OSError, OverflowError, struct.error):
        return None
    finally:
        if not is_kept:
            os.close(memory)
    return first, second


@cached_by_code
def _variables(code: CodeType) -> int:
    """The number of all variables of a frame of this code."""
    count = 0
    while count < _LOCALS_MAX:
        try:
            _name_of(code)(count)
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
    """The exit of a ``with`` block: a callable."""

    def __call__(self, *_: object) -> None:
        """Does nothing."""


def _stands(left: _Leave) -> Iterator[object]:
    """Suspends inside a ``with`` block with this exit, with variables of all kinds."""

    class Block:
        __exit__ = left

        def __enter__(self) -> list[object]:
            return [left]

    with Block() as entered:
        yield lambda: entered
