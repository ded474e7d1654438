"""Which of some objects can be reached from where somebody acts: a walk along references, nearest first, within bounds.

Rules:

1. What a frame or a callback names is held: a variable, a cell, an argument, a default, the object of a bound method, and what
   lists, tuples, sets and dictionaries of these hold.
2. What is found only inside other objects, or as a global, is held by an actor whose code speaks of ending things (``cancel``,
   ``close`` and the like; its own code, or that of the functions it names, and of the methods it names that objects near
   it have). Otherwise every registry would be a way out.
3. The walk does not pass through tasks (each acts for itself), event loops, contexts, modules, classes, nor through what is the
   agent's or gRPC's own, or an HTTP server's that ends no request.
4. It runs no code of the application: it inspects types, never calls objects.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
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
from stilltrue.runtime.origins import is_application

NEAR_MAX = 2_000
"""What is walked by rule 1 from one actor."""
FAR_MAX = 150
"""What is walked by rule 2 from one object, nearest first."""
ITEMS_MAX = 1_000
"""Items that are looked at in one container."""
KINDS_WALK_MAX = 150
"""What is walked from one actor to learn of which classes the objects near it are, nearest first."""
KINDS_WALKS_MAX = 4
"""How often in one look that is done for the same code: a thousand tasks of one kind have objects of the same classes."""
_NAMED_DEPTH = 2
_ENDS = re.compile(
    r"cancel(?!lederror)|abort|close|kill|terminat|shutdown|stop|throw|set_exception|expire|evict|reap|interrupt", re.I
)
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
_CODES_MAX = 10_000
_speaks: dict[tuple[CodeType, type], bool] = {}
_by_near: dict[tuple[CodeType, type], tuple[int, bool]] = {}
"""In this look: how often objects near a code were walked, and whether the methods that it names speak of ending things."""


class Reach:
    """A search for ``targets``, by identity, from one actor after the other."""

    def __init__(self, targets: Iterable[Any], budget: Budget) -> None:
        """``targets`` are kept alive for as long as the search."""
        self._targets = {id(target): target for target in targets}
        self._budget = budget
        self._behind: dict[int, tuple[Any, frozenset[int]]] = {}
        self._barren: dict[int, Any] = {}
        _by_near.clear()

    def held(self, roots: Iterable[Any], *, ends: bool, loose: bool = False) -> set[int]:
        """The targets (identities) held by an actor with ``roots``.

        ``ends``: its code speaks of ending things (rule 2). ``loose``: the roots are not its own (a module's globals).
        """
        roots = tuple(roots)
        if loose and not ends:
            return {id(root) for root in roots if id(root) in self._targets}
        found, objects = self._near(roots)
        if ends:
            for thing in objects:
                if not self._budget.step():
                    break
                found |= self._far(thing)
        return found

    def _near(self, roots: Iterable[Any]) -> tuple[set[int], list[Any]]:
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
                found.add(id(thing))
            elif not issubclass(type(thing), PASSED_BY):
                near = named_by(thing)
                if near is not None:
                    todo.extend(near)
                elif is_open(thing):
                    objects.append(thing)
        return found, objects

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


def is_ending(name: str) -> bool:
    """Whether a name speaks of ending things."""
    return _ENDS.search(name) is not None


def speaks_of_ending(code: CodeType, names: dict[str, Any], owner: Any = None, held: Iterable[Any] = ()) -> bool:
    """Whether ``code`` or what it calls by name ends things (rule 2).

    Its globals are ``names``, its object ``owner``; it has ``held`` besides.
    """
    key = (code, type(owner))
    known = _speaks.get(key)
    if known is None:
        if len(_speaks) >= _CODES_MAX:
            _speaks.clear()
        _speaks[key] = known = any(_speaks_itself(one) for one in _called(code, names, (type(owner),), _NAMED_DEPTH))
    if known or not code.co_names:
        return known
    walks, known = _by_near.get(key, (0, False))
    if not known and walks < KINDS_WALKS_MAX:
        near = (owner, *held, *(names[name] for name in code.co_names if name in names))
        known = any(_speaks_itself(one) for one in _called(code, names, _kinds(near), _NAMED_DEPTH))
        _by_near[key] = walks + 1, known
    return known


def codes_named(
    variables: Iterable[str], attributes: Iterable[str], names: dict[str, Any], near: Iterable[Any]
) -> Iterator[CodeType]:
    """The code of the functions that ``variables`` name among the globals ``names``, and of the application's methods that
    ``attributes`` name of what is ``near``. And of those that these name in turn.
    """
    kinds = _kinds(near)
    functions = [one for name in variables if type(one := names.get(name)) is FunctionType]
    for one in (*functions, *(method for name in attributes for method in _methods(name, kinds))):
        yield from _called(one.__code__, one.__globals__, kinds, _NAMED_DEPTH - 1)


def _called(code: CodeType, names: dict[str, Any], kinds: Iterable[type], depth: int) -> Iterator[CodeType]:
    """``code``, and that of the functions and of the methods of ``kinds`` that it names."""
    yield code
    if not depth:
        return
    for name in code.co_names:
        function = names.get(name)
        functions = [function] if type(function) is FunctionType else []
        for one in functions + _methods(name, kinds):  # a method may have the name of a global
            if one.__code__ is not code:
                yield from _called(one.__code__, one.__globals__, kinds, depth - 1)


def _methods(name: str, kinds: Iterable[type]) -> list[FunctionType]:
    found = (next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None) for kind in kinds)
    return [one for one in found if type(one) is FunctionType]


def _kinds(near: Iterable[Any]) -> tuple[type, ...]:
    """The application's own classes among those of ``near`` and of what is found inside, nearest first."""
    kinds: dict[type, None] = {}
    seen: dict[int, Any] = {}
    todo = deque(near)
    while todo and len(seen) < KINDS_WALK_MAX:
        thing = todo.popleft()
        if id(thing) in seen or issubclass(type(thing), PASSED_BY):
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be given anew
        held = named_by(thing)
        if held is not None:
            todo.extend(held)
        elif is_open(thing):
            kinds[type(thing)] = None
            todo.extend(gc.get_referents(thing))
    return tuple(kind for kind in kinds if _is_own(kind))


def _is_own(kind: type) -> bool:
    """Whether the application has written a class: some method of it is its own code."""
    return any(type(one) is FunctionType and is_application(one.__code__) for one in kind.__dict__.values())


def _speaks_itself(code: CodeType) -> bool:
    return any(map(_ENDS.search, code.co_names)) or any(map(_const_speaks, code.co_consts))


def _const_speaks(const: object) -> bool:
    """Whether it is code that speaks of ending things, or a name to be looked up, as by ``methodcaller``."""
    if isinstance(const, CodeType):
        return _speaks_itself(const)
    return isinstance(const, str) and const.isidentifier() and is_ending(const)
