"""The semaphores of ``multiprocessing`` that this process has, and Python's objects for each.

Rules:

1. An object counts how often this process has acquired the semaphore through it, and not released it.
2. ``multiprocessing`` knows the objects that were made here, or before a fork. A process that it has started otherwise has got
   others, which only the garbage collector can list. If it cannot, nothing is known about their semaphores.
3. A process gets no further object for a semaphore that it has already: it could only send it to itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.orphaned_locks.census import can_list_objects
from stilltrue.runtime.waits.semaphores.kernel import Semaphore, mapped_in

MODULE = "multiprocessing.synchronize"
AGAIN_SECONDS = 1.0
_KINDS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore"})


class OwnSemaphores:
    """The semaphores of this process, as last found."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._mapped: frozenset[Semaphore] = frozenset()
        self._again = float("-inf")
        self.objects: dict[Semaphore, tuple[OwnRef, ...]] = {}

    def find(self) -> None:
        """Find the objects again if the process has got or lost a semaphore, which is looked for once a second."""
        if time.monotonic() < self._again:
            return
        self._again = time.monotonic() + AGAIN_SECONDS
        try:
            mapped = mapped_in("self")
        except OSError:  # this is not Linux
            return
        if mapped.keys() == self._mapped:
            return
        known = _by_semaphore(registered_semaphores(), mapped)
        if known.keys() != mapped.keys() and can_list_objects():
            known = _by_semaphore(_all_objects(), mapped)
        self._mapped, self.objects = frozenset(mapped), known


def registered_semaphores() -> list[Any]:
    """The live objects that ``multiprocessing`` knows (rule 2)."""
    util = sys.modules.get("multiprocessing.util")
    registered = attribute_of(util.__dict__.get("_afterfork_registry"), "data") if util is not None else None
    return [weak() for _, weak in items_of(registered)] if type(registered) is dict else []


def _all_objects() -> list[Any]:
    kinds = [sys.modules[MODULE].__dict__["SemLock"]]
    for kind in kinds:
        kinds += [one for one in type.__subclasses__(kind) if one not in kinds]
    return objects_of(frozenset(kinds))


def _by_semaphore(objects: Iterable[Any], mapped: dict[Semaphore, tuple[int, int]]) -> dict[Semaphore, tuple[OwnRef, ...]]:
    found: dict[Semaphore, tuple[OwnRef, ...]] = {}
    for one in objects:
        address: Any = getattr(attribute_of(one, "_semlock"), "handle", None)
        for key, (start, end) in mapped.items() if type(address) is int else ():
            if start <= address < end:
                found[key] = (*found.get(key, ()), OwnRef(one))
    return found


def is_semaphore(thing: Any) -> bool:
    """Whether it is a lock or semaphore of multiprocessing."""
    kind = type(thing)
    return kind.__module__ == MODULE and kind.__name__ in _KINDS


def is_taken_elsewhere(locks: Iterable[Any]) -> bool:
    """Whether the semaphore of these objects has no share left, and this process has none."""
    own = [attribute_of(one, "_semlock") for one in locks]
    return bool(own) and all(one._count() == 0 for one in own) and own[0]._is_zero()  # noqa: SLF001 - there is no public way
