"""All functions of the process, and all its suspended coroutines and generators: what a proof must go through, read once.

Python's collector knows them all: whoever has them, wherever they are kept.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, no_collection
from stilltrue.runtime.introspection.origins import is_application

BLOCKS_MAX = 1_500_000
"""Blocks of memory that Python has given out (an object takes one to three): to read more would stop the process too long."""
_INSTALLED = "-packages"
_SUSPENDED = (CoroutineType, GeneratorType, AsyncGeneratorType)


@dataclass(frozen=True, slots=True)
class Census:
    """``functions``; ``suspended``: coroutines and generators with their frames; ``hidden``: whether there are frames that
    cannot be seen (of greenlets).
    """

    functions: Sequence[FunctionType]
    suspended: Sequence[tuple[Any, FrameType]]
    hidden: bool


def take_census() -> Census | None:
    """What there is at this moment; None if that is too much to read."""
    if sys.getallocatedblocks() > BLOCKS_MAX:
        return None
    with no_collection:
        objects = gc.get_objects()
        functions = [one for one in objects if type(one) is FunctionType]
        suspended = [one for one in objects if type(one) in _SUSPENDED]
        hidden = any(_is_greenlet(one) for one in objects if type(one).__name__ == "greenlet")
        del objects
    frames = [(one, frame) for one in suspended if (frame := frame_of(one)) is not None and not _runs(one)]
    return Census(functions, frames, hidden)


def _is_greenlet(thing: Any) -> bool:
    """Whether it is a greenlet that is suspended."""
    return compat.module_of(type(thing)) == "greenlet" and getattr(thing, "gr_frame", None) is not None


def _runs(suspended: Any) -> bool:
    """Whether a coroutine or generator runs: its frame is one of its thread's."""
    return any(getattr(suspended, name, False) is True for name in ("cr_running", "gi_running", "ag_running"))


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """A code, and those of the functions within it."""
    yield code
    for one in code.co_consts:
        if type(one) is CodeType:
            yield from codes_within(one)


def root_of(code: CodeType) -> str:
    """The installed package that a code belongs to; empty for what is not installed."""
    before, found, after = code.co_filename.replace("\\", "/").partition(f"{_INSTALLED}/")
    return f"{before}{found}{after.partition('/')[0]}" if found else ""


def is_of(code: CodeType, roots: frozenset[str]) -> bool:
    """Whether a code is the application's own: not installed, or of one of these packages."""
    return is_application(code) and (not (root := root_of(code)) or root in roots)
