"""Which suspended tasks can reach an object, and the proof that nothing else can: every reference to it is accounted for.

Rules:

1. What leads to an object are the objects that refer to it, those that refer to these, and so on. This ends at suspended
   tasks: what a task's coroutines and its context hold, that task can reach.
2. The interpreter's own count of references decides, as it does in Python's collection of cycles: each reference to each of
   these objects is known, or somebody unknown has one: a thread that runs, a module, a compiled extension, a timer, a socket,
   a signal's handler. The counts, and what the known holders refer to, are read in one step, in which no other code runs.
3. Whatever has weak references can be reached through one; the agent's own, and those with which asyncio lists all tasks, do
   not count. A finalizer runs only when its object is let go of, so by somebody who can reach it; but what
   a weak reference calls is called by whoever lets go of another object, so it must not be among what leads to this one.
4. Whoever has a task can cancel it, or look into it, but does not have what the task has: cancelling is found elsewhere.
5. Where references are not counted at once (free-threaded Python), or frames borrow them (Python 3.14), nothing is proved.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
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
"""Objects that are read in one search."""
LEADING_MAX = 500
"""Objects that lead to one, at most."""
ITEMS_MAX = 10_000
"""The references of an object with more items are not read."""
_SIZED: tuple[Any, ...] = (list, tuple, set, frozenset, dict, deque)
_LEFT_OUT = (ModuleType, type, CodeType, asyncio.AbstractEventLoop)
_CALLING = (weakref.ref, weakref.ProxyType, weakref.CallableProxyType)
"""What calls when something else is let go of, by whomever."""
_BORROWING = (3, 14)
_PROBE = -1


@dataclass(slots=True)
class References:
    """Objects by identity, which of them refer to which, and the coroutines of tasks."""

    things: dict[int, Any] = field(default_factory=dict)
    referrers: dict[int, list[int]] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    """By the identity of a pending task, or of a coroutine that one awaits: that task's."""

    def pending(self) -> list[Task]:
        """The tasks that are not done."""
        return [self.things[task] for task in dict.fromkeys(self.tasks.values())]


def references_from(tasks: Iterable[Task], budget: Budget) -> References:
    """What can be found from these tasks, nearest first; within the budget."""
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
            coroutines = (one for one in compat.chain_of(thing.get_coro()) if type(one) is CoroutineType)
            found.tasks.update(dict.fromkeys(map(id, coroutines), own))
        for held in _referents(thing):
            if not gc.is_tracked(held):
                continue
            if id(held) not in found.things:
                found.things[id(held)] = held
                todo.append(id(held))
            found.referrers.setdefault(id(held), []).append(own)
    return found


def reached_by(wanted: int, found: References) -> list[Task] | None:
    """The tasks that can reach the object of this identity; None unless it is proved that nothing else can."""
    leading, ends = _leading_to(wanted, found)
    if wanted not in found.things or not leading or not _accounted_for(leading, ends, found):
        return None
    return [found.things[task] for task in dict.fromkeys(found.tasks[end] for end in ends)]


def _leading_to(wanted: int, found: References) -> tuple[list[int], list[int]]:
    """Rule 1: what leads to an object, itself included, and the tasks and coroutines at which that ends; none if too many."""
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


def _accounted_for(leading: Sequence[int], ends: Sequence[int], found: References) -> bool:
    """Rules 2 and 3, of the objects of these identities."""
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
        type(one) is not OwnRef and not compat.is_of_all_tasks(one) for one in weak
    ):
        return False
    return all(count - counts[-1] == known[one] for one, count in zip(leading, counts, strict=False))


def _referents(thing: Any) -> list[Any]:
    """What an object refers to; nothing for what leads to everything, or has too many items."""
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
    """Those of the tasks (identities) that are found from ``roots``: others may be collected, and end so."""
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
