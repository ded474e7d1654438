"""The proof that every reference to some objects is known: rule 2 of
:mod:`~stilltrue.runtime.waits.reachability.references.thread_reach`.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections import Counter
from itertools import chain
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.loops.stopped_loops import is_of_stopped_loop
from stilltrue.runtime.waits.reachability.names.own_classes import is_followed
from stilltrue.runtime.waits.reachability.references.frame_references import read_frames
from stilltrue.runtime.waits.reachability.references.leading_objects import LeadingObjects

AGAIN_SECONDS = (0.002, 0.02, 0.1)
"""The pauses before the counts are read again (rule 2)."""
_PROBE = -1


def never_accounted_for(found: LeadingObjects) -> list[int]:
    """The objects to which an unknown holder refers, also when the counts are read again (rule 2)."""
    left = _not_accounted_for(found)
    for seconds in AGAIN_SECONDS:
        if not left or time.thread_time() > found.until:
            break
        time.sleep(seconds)
        read_frames(found, Counter(), known_only=False)
        left = _not_accounted_for(found)
    return left


def _not_accounted_for(found: LeadingObjects) -> list[int]:
    """The objects to which an unknown holder refers."""
    known, again = Counter[int](), Counter[int]()
    read_frames(found, known, known_only=True)
    found.things[_PROBE] = object()
    keys, things = list(found.things), list(found.things.values())
    holders = [*things, *found.holders.values()]
    with no_collection:
        read: list[Any] = list(
            chain(map(sys.getrefcount, things), map(gc.get_referents, holders), map(weakref.getweakrefs, things))
        )
    read_frames(found, again, known_only=True)
    del found.things[_PROBE]
    if again != known:
        return keys
    counts, rest = read[: len(things)], read[len(things) :]
    known.update(id(held) for referents in rest[: len(holders)] for held in referents)
    weak = dict(zip(keys, rest[len(holders) :], strict=True))
    every = zip(keys[:-1], counts, strict=False)
    return [key for key, count in every if count - counts[-1] != known[key] or _is_followed(found.things[key], weak[key])]


def _is_followed(thing: Any, weak: list[Any]) -> bool:
    """Whether one of the weak references is not the agent's, ``threading``'s, ``concurrent.futures``' or a base class's.

    Those by which ``multiprocessing`` finds its objects after a fork, in the child, or cleans up after them, do not count.
    """
    if issubclass(type(thing), type):
        return is_followed(thing, weak)
    every = set(map(id, threading._dangling.data.copy()))  # type: ignore[attr-defined]  # noqa: SLF001 - all threads
    every.update(map(id, _after_forks()))
    if is_of_stopped_loop(thing) or compat.is_finished_task(thing):  # asyncio lists all tasks
        weak = [one for one in weak if not compat.is_registry_ref(one)]
    others = (one for one in weak if type(one) is not OwnRef and id(one) not in every)
    return not all(compat.only_ends_executors_threads(one.__callback__) or _cleans_up(one.__callback__) for one in others)


def _after_forks() -> list[Any]:
    util = sys.modules.get("multiprocessing.util")
    registered = attribute_of(getattr(util, "_afterfork_registry", None), "data")
    return [weak for _, weak in items_of(registered)] if type(registered) is dict else []


def _cleans_up(callback: Any) -> bool:
    return (compat.module_of(type(callback)), type(callback).__name__) == ("multiprocessing.util", "Finalize")
