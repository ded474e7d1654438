"""Which of some objects can be reached from where somebody acts: a walk along references, nearest first, within bounds.

Rules:

1. What a frame or a callback names is held: a variable, a cell, an argument, a default, the object of a bound method, and what
   lists, tuples, sets and dictionaries of these hold.
2. What is found only inside other objects, or as a global, is held by an actor whose code speaks of ending things
   (:mod:`~stilltrue.runtime.look.code.spoken`), and by whoever comes by something that ends it when it is called, left or
   forgotten: a handler in a registry, a ``with`` block's exit, a finalizer. Otherwise every registry would be a way out.
3. The walk does not pass through tasks (each acts for itself), event loops, contexts, modules, classes, nor through what is the
   agent's or gRPC's own, or an HTTP server's that ends no request.
4. It runs no code of the application: it inspects types, never calls objects.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from itertools import islice
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.look.budget import Budget

NEAR_MAX = 2_000
"""What is walked by rule 1 from one actor."""
FAR_MAX = 150
"""What is walked by rule 2 from one object, nearest first."""
ITEMS_MAX = 1_000
"""Items that are looked at in one container."""
_CALLABLES = (FunctionType, MethodType, BuiltinFunctionType, CellType, ref)
_SUSPENDED = (CoroutineType, GeneratorType, AsyncGeneratorType)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_PLAIN = (dict, *_CONTAINERS)
"""What can end nothing: ``set.discard`` as a callback is no way out for what else is in the set."""
PASSED_BY = (
    type(None),
    str,
    bytes,
    int,
    float,
    type,
    ModuleType,
    CodeType,
    FrameType,
    Context,
    threading.Thread,
    asyncio.AbstractEventLoop,
    asyncio.Future,
)

EndedBy = Callable[[Any], Iterable[Any]]


class Reach:
    """A search for ``targets``, by identity, from one actor after the other."""

    def __init__(
        self, targets: Iterable[Any], budget: Budget, ended_by: EndedBy = lambda _: (), *, outright: bool = True
    ) -> None:
        """``targets`` are kept alive for as long as the search; ``ended_by``: what a thing ends that is called (rule 2).

        ``outright``: a target that is named is held, whatever its holder speaks of (rule 1).
        """
        self._outright = outright
        self._targets = {id(target): target for target in targets}
        self._budget = budget
        self._ended_by = ended_by
        self._behind: dict[int, tuple[Any, frozenset[int]]] = {}
        self._barren: dict[int, Any] = {}
        self._behind_calls: dict[int, tuple[Any, frozenset[int]]] = {}

    def held(self, roots: Iterable[Any], *, ends: bool, loose: bool = False) -> set[int]:
        """The targets (identities) held by an actor with ``roots``.

        ``ends``: its code speaks of ending things (rule 2). ``loose``: the roots are not its own (a module's globals).
        """
        roots = tuple(roots)
        if loose and not ends:
            return {id(root) for root in roots if id(root) in self._targets}
        found, objects = self._near(roots, ends)
        for thing in objects:
            if not self._budget.step():
                break
            found |= self._far(thing) if ends else self._behind_called(thing)
        return found

    def _near(self, roots: Iterable[Any], ends: bool) -> tuple[set[int], list[Any]]:
        """Rule 1: the targets that are held outright, and the other objects that are."""
        found: set[int] = set()
        objects: list[Any] = []
        seen: dict[int, Any] = {}
        todo = deque(roots)
        while todo and len(seen) < NEAR_MAX and self._budget.step():
            thing = todo.popleft()
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing  # kept alive, or its identity may be given anew
            if id(thing) in self._targets:
                if self._outright or ends:
                    found.add(id(thing))
            elif not issubclass(type(thing), PASSED_BY):
                near = named_by(thing)
                for ended in self._ended_by(thing):
                    found |= self._far(ended)
                if near is not None:
                    todo.extend(near)
                elif is_open(thing):
                    objects.append(thing)
        return found, objects

    def _behind_called(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets that something ends which is found through one object, and may be called."""
        known = self._behind_calls.get(id(root))
        if known is None:
            found: set[int] = set()
            for thing in self._walk(root):
                for ended in self._ended_by(thing):
                    found |= self._far(ended)
            known = self._behind_calls[id(root)] = (root, frozenset(found))
        return known[1]

    def _walk(self, root: Any) -> Iterator[Any]:
        """What is found through one object, nearest first."""
        seen: dict[int, Any] = {}
        todo = deque([root])
        while todo and len(seen) < FAR_MAX and self._budget.step():
            thing = todo.popleft()
            if id(thing) in seen or issubclass(type(thing), PASSED_BY):
                continue
            seen[id(thing)] = thing  # kept alive, or its identity may be given anew
            yield thing
            near = named_by(thing)
            if near is not None:
                todo.extend(near)
            elif is_open(thing):
                todo.extend(gc.get_referents(thing))

    def _far(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets that are found through one object, nearest first."""
        known = self._behind.get(id(root))
        if known is not None:
            return known[1]
        found: set[int] = set()
        seen: dict[int, Any] = {}
        todo = deque([root])
        while todo and len(seen) < FAR_MAX and self._budget.step():
            thing = todo.popleft()
            if id(thing) in seen or id(thing) in self._barren:
                continue
            seen[id(thing)] = thing  # kept alive, or its identity may be given anew
            if id(thing) in self._targets:
                found.add(id(thing))
            elif not issubclass(type(thing), PASSED_BY):
                near = named_by(thing)
                if near is not None:
                    todo.extend(near)
                elif is_open(thing):
                    todo.extend(gc.get_referents(thing))
        if not todo and not found:
            self._barren |= seen
        self._behind[id(root)] = (root, frozenset(found))
        return self._behind[id(root)][1]


def named_by(thing: Any) -> Iterable[Any] | None:
    """What ``thing`` holds by rule 1; None for an object of any other kind. Runs none of its code."""
    kind = type(thing)
    if issubclass(kind, _CALLABLES):
        carried = compat.bound_to(thing)
        return () if kind is BuiltinFunctionType and carried and issubclass(type(carried[0]), _PLAIN) else carried
    if issubclass(kind, functools.partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if issubclass(kind, _SUSPENDED):
        return compat.names_in(thing)
    if issubclass(kind, dict):
        return () if dict.__contains__(thing, "__builtins__") else _first(dict.values(thing)) + _first(dict.keys(thing))
    for container in _CONTAINERS:
        if issubclass(kind, container):
            return _first(container.__iter__(thing))
    return compat.beneath(thing)


def _first(things: Iterable[Any]) -> list[Any]:
    try:
        return list(islice(things, ITEMS_MAX))
    except RuntimeError:  # it changed meanwhile
        return []


def is_open(thing: Any) -> bool:
    """Whether the walk may pass through an object (rule 3)."""
    if not gc.is_tracked(thing):
        return False
    return not compat.module_of(type(thing)).startswith(("grpc", "stilltrue.")) and not compat.waits_for_requests(thing)
