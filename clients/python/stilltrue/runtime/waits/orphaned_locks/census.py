"""A census of all functions, suspended coroutines and generators of the process, which a proof must examine.

Python's garbage collector knows all of them, wherever they are kept, but for those that ``gc.freeze`` has hidden.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.introspection.frames import frame_of, no_collection
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.own_packages import is_own, package_of

BLOCKS_MAX = 1_500_000
"""Maximum number of allocated memory blocks (one to three per object): reading more would stop the process for too long."""
_FROZEN_MAX = 1_000
"""Python 3.12 has frozen some hundred objects of its own when it starts; an application has tens of thousands."""
_SUSPENDED = (CoroutineType, GeneratorType, AsyncGeneratorType)
_COUNTED = frozenset({FunctionType, *_SUSPENDED})


@dataclass(frozen=True, slots=True)
class Census:
    """``suspended``: coroutines and generators with their frames; ``hidden``: whether greenlets have invisible frames."""

    functions: Sequence[FunctionType]
    suspended: Sequence[tuple[Any, FrameType]]
    hidden: bool


def can_list_objects() -> bool:
    """Whether the collector lists all objects, and fast: the process is not too large, and has not called ``gc.freeze``."""
    return sys.getallocatedblocks() <= BLOCKS_MAX and gc.get_freeze_count() <= _FROZEN_MAX


def take_census() -> Census | None:
    """The census of this moment; None if the objects cannot be listed."""
    if not can_list_objects():
        return None
    with no_collection:
        objects = objects_of(_COUNTED | _greenlets())
        functions = [one for one in objects if type(one) is FunctionType]
        suspended = [one for one in objects if type(one) in _SUSPENDED]
        hidden = any(map(_is_greenlet, objects))
        del objects
    frames = [(one, frame) for one in suspended if (frame := frame_of(one)) is not None and not _runs(one)]
    return Census(functions, frames, hidden)


def _greenlets() -> frozenset[type]:
    module = sys.modules.get("greenlet")
    kind = None if module is None else module.__dict__.get("greenlet")
    return frozenset({kind}) if isinstance(kind, type) else frozenset()


def _is_greenlet(thing: Any) -> bool:
    """Whether it is a suspended greenlet."""
    return compat.module_of(type(thing)) == "greenlet" and getattr(thing, "gr_frame", None) is not None


def _runs(suspended: Any) -> bool:
    """Whether a coroutine or generator is running, so that its frame is on a thread's stack."""
    return any(getattr(suspended, name, False) is True for name in ("cr_running", "gi_running", "ag_running"))


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions within it."""
    yield code
    for one in code.co_consts:
        if type(one) is CodeType:
            yield from codes_within(one)


def root_of(code: CodeType) -> str:
    """The folder of the library that a code object belongs to; empty for the application's own code."""
    package = package_of(code.co_filename)
    return "" if package is None or is_own(package) else package


def is_of(code: CodeType, roots: frozenset[str]) -> bool:
    """Whether code is the application's own, or in one of these libraries."""
    return is_application(code) and (not (root := root_of(code)) or root in roots)
