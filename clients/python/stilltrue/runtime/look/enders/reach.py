"""Which of some objects can be reached from where somebody acts: a walk along references, nearest first, within bounds.

Rules:

1. What a frame or a callback names is held: a variable, a cell, an argument, a default, the object of a bound method, and what
   lists, tuples, sets and dictionaries of these hold.
2. What is found only inside other objects, or as a global, is held by an actor whose code speaks of ending things
   (:mod:`~stilltrue.runtime.look.code.ending`), and by whoever comes by something that ends it when it is called,
   left or forgotten: a handler in a registry, a ``with`` block's exit, a finalizer. Otherwise every registry would be one.
3. The walk does not pass through tasks and threads (each acts for itself), event loops, contexts, modules, classes, nor through
   what is the agent's or gRPC's own, or an HTTP server's that ends no request. A thread of the application's own class has
   attributes as any object; a context that is held outright is there for its variables.
4. Of a container with many items, and where the walk ends, what is right behind is read at once.
5. Who gives back what others have comes by whatever has attributes: threads, classes, functions. What a variable of a context
   or thread means cannot be read: it may be anything.
6. It runs no code of the application: it inspects types, never calls objects.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, ContextVar
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
from stilltrue.runtime.look.code.attributes import attributes_of

NEAR_MAX = 2_000
"""What is walked by rule 1 from one actor."""
FAR_MAX = 150
"""What is walked by rule 2 from one object, nearest first."""
UNDOING_MAX = 2_000
"""What is walked so from what somebody has who gives back what others have."""
ITEMS_MAX = 1_000
"""Items that are looked at in one container."""
MANY = 50
"""Items from which on what is behind them is read at once."""
ITEMS_BEHIND_MAX = 100_000
"""Items that are read at once in one container that has more."""
_CALLABLES = (FunctionType, MethodType, BuiltinFunctionType, CellType, ref)
_SUSPENDED = (CoroutineType, GeneratorType, AsyncGeneratorType)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_PLAIN: tuple[Any, ...] = (dict, *_CONTAINERS)
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

_HAVING = (type, threading.Thread, Context)
_OPAQUE = (ContextVar, threading.local)
_CONDITIONS = (threading.Condition, asyncio.Condition)

Leads = Callable[[Iterable[Any]], bool]
EndedBy = Callable[[Any, Leads], Iterable[Any]]
"""What a thing ends that is called: it need not tell of what does not lead to a target."""
_opened_things: dict[int, tuple[Any, Iterable[Any] | None, tuple[Any, ...]]] = {}
"""In this look, by the identity of an object: what it names (None: nothing by itself), and what is found behind it."""


def forget() -> None:
    """Forget what was found in a look."""
    _opened_things.clear()


class Reach:
    """A search for ``targets``, by identity, from one actor after the other."""

    def __init__(
        self, targets: Iterable[Any], budget: Budget, ended_by: EndedBy = lambda *_: (), *, outright: bool = True
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
        self._ended: dict[int, tuple[Any, frozenset[int]]] = {}
        self._passed: dict[int, tuple[type, bool | None]] = {}
        self._within: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._behind_calls: dict[int, tuple[Any, frozenset[int]]] = {}
        self._among: dict[int, tuple[Any, frozenset[int]]] = {}
        self._by_name: dict[tuple[bool, tuple[int, ...]], tuple[Any, set[int]]] = {}

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

    def held_by_name(self, named: Iterable[Any], *, ends: bool) -> set[int]:
        """As :meth:`held`, of what code names. It is walked once in a search: many actors run the same code."""
        named = tuple(named)
        key = (ends, tuple(map(id, named)))
        if key not in self._by_name:
            self._by_name[key] = (named, self.held(named, ends=ends))
        return self._by_name[key][1]

    def ended_by_calls(self, roots: Iterable[Any]) -> set[int]:
        """The targets (identities) that something ends which is found through one of ``roots``, and may be called (rule 2)."""
        found: set[int] = set()
        for root in roots:
            if not self._budget.step():
                break
            found |= self._behind_called(root)
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
            elif type(thing) is Context or not self._is_passed_by(thing):
                near = self._named_by(thing)
                found |= self._ended_if_called(thing)
                if near is not None:
                    todo.extend(near)
                    found |= self._among_many(thing) if self._outright or ends else frozenset()
                    if type(thing) is FunctionType and not self._outright and thing.__dict__:
                        objects += thing.__dict__.values()
                elif is_open(thing):
                    objects.append(thing)
        return found, objects

    def _named_by(self, thing: Any) -> Iterable[Any] | None:
        """As :func:`named_by`; a context's variables have a meaning, but for who undoes things (rule 5)."""
        return tuple(thing.values()) if self._outright and type(thing) is Context else _opened(thing)[1]

    def _is_passed_by(self, thing: Any) -> bool:
        """Whether the walk does not open it (rule 3); who undoes things comes by all that has attributes (rule 5)."""
        kind = type(thing)
        known = self._passed.get(id(kind))
        if known is None:
            known = self._passed[id(kind)] = (kind, self._is_kind_passed_by(kind))
        return _is_standard(thing) if known[1] is None else known[1]

    def _is_kind_passed_by(self, kind: type) -> bool | None:
        """The same of all objects of a class; None: it depends on the object, which is a class itself."""
        if issubclass(kind, threading.Thread) and not _is_standard(kind):
            return False
        if self._outright or not issubclass(kind, _HAVING):
            return issubclass(kind, PASSED_BY)
        return None if issubclass(kind, type) else False

    def _behind_called(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets that something ends which is found through one object, and may be called."""
        known = self._behind_calls.get(id(root))
        if known is None:
            found: set[int] = set()
            for thing in self._walk(root):
                found |= self._ended_if_called(thing)
            known = self._behind_calls[id(root)] = (root, frozenset(found))
        return known[1]

    def _ended_if_called(self, thing: Any) -> frozenset[int]:
        """Rule 2: the targets that one thing ends, if it is called. It is read once in a search."""
        known = self._ended.get(id(thing))
        if known is None:
            ended = self._ended_by(thing, self._leads)
            known = self._ended[id(thing)] = (thing, frozenset().union(*map(self._far, ended)))
        return known[1]

    def _leads(self, things: Iterable[Any]) -> bool:
        """Whether a target is found through one of some things."""
        return any(map(self._far, things))

    def _walk(self, root: Any) -> Iterator[Any]:
        """What is found through one object, nearest first."""
        seen: dict[int, Any] = {}
        todo = deque([root] if not self._is_passed_by(root) else [])
        while todo:
            thing = todo.popleft()
            if id(thing) in seen:
                continue
            if len(seen) >= FAR_MAX or not self._budget.step():
                break
            seen[id(thing)] = thing  # kept alive, or its identity may be given anew
            yield thing
            known = self._within.get(id(thing))
            if known is None:
                within = tuple(one for one in _opened(thing)[2] if not self._is_passed_by(one))
                known = self._within[id(thing)] = (thing, within)
            todo.extend(known[1])

    def _far(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets that are found through one object, nearest first; and right behind the last of those."""
        known = self._behind.get(id(root))
        if known is not None:
            return known[1]
        found: set[int] = set()
        seen: dict[int, Any] = {}
        todo = deque([root])
        far_max = FAR_MAX if self._outright else UNDOING_MAX
        barren, targets, step = self._barren, self._targets, self._budget.step
        while todo:
            thing = todo.popleft()
            key = id(thing)
            if key in seen or key in barren:
                continue
            if len(seen) >= far_max or not step():
                todo.appendleft(thing)
                break
            seen[key] = thing  # kept alive, or its identity may be given anew
            if key in targets:
                found.add(key)
            elif not self._outright and issubclass(type(thing), _OPAQUE):
                found |= targets.keys()
            elif not self._is_passed_by(thing):
                todo.extend(_opened(thing)[2])
                found |= self._among_many(thing)
        if todo:
            found |= set() if self._outright else self._right_behind(todo)
        elif not found:
            self._barren |= seen
        self._behind[id(root)] = (root, frozenset(found))
        return self._behind[id(root)][1]

    def _among_many(self, container: Any) -> frozenset[int]:
        """The targets among the many items of a container, or right behind one of them (rule 4). Read once in a search."""
        if not _has_many(container):
            return frozenset()
        known = self._among.get(id(container))
        if known is None:
            known = self._among[id(container)] = (container, frozenset(self._read_many(container)))
        return known[1]

    def _read_many(self, container: Any) -> set[int]:
        items = iter(dict.values(container) if issubclass(type(container), dict) else container)
        found: set[int] = set()
        try:
            for _ in range(ITEMS_BEHIND_MAX // ITEMS_MAX):
                some = list(islice(items, ITEMS_MAX))
                if not some or not self._budget.step():
                    break
                found |= self._right_behind(some)
        except RuntimeError:  # it changed meanwhile
            pass
        return found

    def _right_behind(self, things: Iterable[Any]) -> set[int]:
        """The targets among some objects, or among what these have, read at once (rule 4)."""
        near = [one for one in things if not issubclass(type(one), PASSED_BY) or id(one) in self._targets]
        held = gc.get_referents(*near) if near else []
        names = gc.get_referents(*(one for one in held if type(one) is dict and not dict.__contains__(one, "__builtins__")))
        return {key for one in (near, held, names) for key in map(id, one) if key in self._targets}


def _is_standard(kind: type) -> bool:
    """Whether a class is one of the standard library's."""
    return compat.module_of(kind).partition(".")[0] in sys.stdlib_module_names


def _has_many(thing: Any) -> bool:
    """Whether it is a container with many items, and no module's names."""
    for kind in _PLAIN:
        if issubclass(type(thing), kind):
            return kind.__len__(thing) > MANY and not (kind is dict and dict.__contains__(thing, "__builtins__"))
    return False


def _opened(thing: Any) -> tuple[Any, Iterable[Any] | None, tuple[Any, ...]]:
    """An object, what it names, and what is found behind it: that, or what it has. Read once in a look."""
    known = _opened_things.get(id(thing))
    if known is None:
        near = named_by(thing)
        named = None if near is None else tuple(near)
        known = _opened_things[id(thing)] = thing, named, tuple(_had_by(thing)) if named is None else named
    return known


def _had_by(thing: Any) -> Iterable[Any]:
    """What an object has, if the walk may pass through it."""
    if not is_open(thing):
        return ()
    found = gc.get_referents(thing)
    if issubclass(type(thing), _CONDITIONS):  # it keeps the ``release`` of its lock
        found = [one for one in (*found, *attributes_of(thing)) if type(one) not in (BuiltinFunctionType, MethodType, dict)]
    return found


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
