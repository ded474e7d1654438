"""Finds the suspended tasks that can reach an object, and proves that nothing else can: every reference is accounted for.

Rules:

1. The objects that refer to an object lead to it, and so do those that refer to these, and so on. The search ends at suspended
   tasks: a task can reach what its coroutines and its context refer to.
2. The interpreter's reference counts decide, as in Python's collection of cycles: either every reference to each of these
   objects is known, or an unknown holder has one: a running thread, a module, a compiled extension, a timer, a socket, a
   signal handler. The counts, and what the known holders refer to, are read in one step, during which no other code runs.
3. An object with weak references can be reached through one, except through the agent's own and those with which asyncio lists
   all tasks and all asynchronous generators: nobody else can resume or close a generator that is being asked for its next item.
   A finalizer runs only when its object is released, by a party that can reach it. But the callback of a weak reference runs
   when another object is released, by any party, so a weak reference must not lead to this object.
4. A party that has a task can cancel or inspect it, but does not have what the task has. Cancellers are found elsewhere.
5. If reference counts are deferred (free-threaded Python), or frames borrow references (Python 3.14), nothing is proved.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import CodeType, CoroutineType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.own_ref import OwnRef

Task = asyncio.Task[Any]
NODES_MAX = 100_000
"""Maximum number of objects to read in a search."""
LEADING_MAX = 500
"""Maximum number of objects that lead to one."""
ITEMS_MAX = 10_000
"""The references of a larger container are not read."""
_SIZED: tuple[Any, ...] = (list, tuple, set, frozenset, dict, deque)
_LEFT_OUT = (ModuleType, type, CodeType, asyncio.AbstractEventLoop)
_CALLING = (weakref.ref, weakref.ProxyType, weakref.CallableProxyType)
"""Objects whose callbacks run when another object is released."""
_BORROWING = (3, 14)
_PROBE = -1


@dataclass(slots=True)
class References:
    """Objects by identity, their referrers, and the tasks among them with their coroutines."""

    things: dict[int, Any] = field(default_factory=dict)
    referrers: dict[int, list[int]] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    """The identity of a pending task, by its own identity and those of the coroutines that it awaits."""

    def pending(self) -> list[Task]:
        """The tasks that are not done."""
        return [self.things[task] for task in dict.fromkeys(self.tasks.values())]


def references_from(tasks: Iterable[Task], budget: Budget) -> References:
    """The objects reachable from these tasks, nearest first, within the budget."""
    found = References()
    todo: deque[int] = deque()
    for task in tasks:
        found.things[id(task)] = task
        todo.append(id(task))
    while todo and len(found.things) < NODES_MAX and budget.step():
        own = todo.popleft()
        thing = found.things[own]
        if compat.is_task(thing) and not thing.done():
            found.tasks[own] = own
            coroutines = (one for one in compat.await_chain(thing.get_coro()) if type(one) is CoroutineType)
            found.tasks.update(dict.fromkeys(map(id, coroutines), own))
        for held in _referents(thing):
            if not gc.is_tracked(held):
                continue
            if id(held) not in found.things:
                found.things[id(held)] = held
                todo.append(id(held))
            found.referrers.setdefault(id(held), []).append(own)
    return found


def reached_by(wanted: int, found: References, is_known: Callable[[Any], bool] = lambda _: False) -> list[Task] | None:
    """The tasks that can reach the object with this identity; None unless it is proved that nothing else can.

    ``is_known``: whether a weak reference is one through which only known parties act, found elsewhere.
    """
    leading, ends = _leading_to(wanted, found)
    if wanted not in found.things or not leading or not _accounted_for(leading, ends, found, is_known):
        return None
    return [found.things[task] for task in dict.fromkeys(found.tasks[end] for end in ends)]


def _leading_to(wanted: int, found: References) -> tuple[list[int], list[int]]:
    """Rule 1: the objects that lead to one, itself included, and the tasks and coroutines at the ends; none if too many."""
    leading, ends = {wanted: None}, dict[int, None]()
    todo = [wanted]
    while todo:
        for holder in found.referrers.get(todo.pop(), ()):
            if holder in found.tasks:
                ends[holder] = None
            elif holder not in leading:
                leading[holder] = None
                todo.append(holder)
        if len(leading) > LEADING_MAX:
            return [], []
    return list(leading), list(ends)


def _accounted_for(leading: Sequence[int], ends: Sequence[int], found: References, is_known: Callable[[Any], bool]) -> bool:
    """Whether rules 2 and 3 hold for the objects with these identities."""
    if sys.version_info >= _BORROWING or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    found.things[_PROBE] = object()
    things = [found.things[one] for one in (*leading, _PROBE)]
    holders = [*things, *(found.things[end] for end in ends)]
    with no_collection:
        read: list[Any] = list(
            chain(map(sys.getrefcount, things), map(gc.get_referents, holders), map(weakref.getweakrefs, things))
        )
    counts, rest = read[: len(things)], read[len(things) :]
    known = Counter(id(held) for referents in rest[: len(holders)] for held in referents)
    weak = (one for those in rest[len(holders) :] for one in those)
    if any(issubclass(type(one), _CALLING) for one in things) or any(
        type(one) is not OwnRef and not compat.is_registry_ref(one) and not is_known(one) for one in weak
    ):
        return False
    return all(count - counts[-1] == known[one] for one, count in zip(leading, counts, strict=False))


def _referents(thing: Any) -> list[Any]:
    """The objects to which one refers; none if it leads to everything or has too many items."""
    kind = type(thing)
    if issubclass(kind, _LEFT_OUT):
        return []
    for sized in _SIZED:
        if issubclass(kind, sized) and (sized.__len__(thing) > ITEMS_MAX or _is_globals(thing)):
            return []
    return gc.get_referents(thing)


def _is_globals(thing: Any) -> bool:
    return issubclass(type(thing), dict) and dict.__contains__(thing, "__builtins__")


def kept(tasks: Iterable[Task], roots: Iterable[Any], budget: Budget) -> set[int]:
    """The identities of the tasks that are reachable from ``roots``. Others may be collected, which ends them."""
    wanted = {id(task) for task in tasks}
    found: set[int] = set()
    seen: dict[int, Any] = {}
    todo = deque(roots)
    while todo and found != wanted and len(seen) < NODES_MAX and budget.step():
        thing = todo.popleft()
        if id(thing) in seen or not gc.is_tracked(thing):
            continue
        seen[id(thing)] = thing
        if id(thing) in wanted:
            found.add(id(thing))
        todo.extend(_referents(thing))
    return found
