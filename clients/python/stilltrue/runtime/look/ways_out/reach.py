"""Which targets an actor can reach: a bounded breadth-first walk along references.

Rules:

1. Objects named by a frame or callback are held: variables, cells, arguments, defaults, the instance of a bound method, and the
   items of lists, tuples, sets and dictionaries of these.
2. Objects found only inside other objects, or as globals, are held by an actor whose code mentions ending things
   (:mod:`~stilltrue.runtime.look.called_code.ending`), or that can get something that ends them when it is called, left or
   dropped: a handler in a registry, a ``with`` block's exit, a finalizer. Otherwise every registry would be a way out.
3. The walk does not pass through tasks and threads (each acts for itself), event loops, contexts, modules, classes, the agent's
   and gRPC's own objects (except to what these wrap and end), an HTTP server that ends no request, Django's connections,
   which other threads may find but not use, or the line of those who wait for a library's pool. A thread of an application
   class has attributes like any object; a context held outright counts for its variables; a future that is no task, for what
   its end calls.
4. In a container with many items, and where the walk stops, the objects directly behind are read in bulk.
5. A party that can undo what another holds can use anything with attributes: threads, classes, functions. Variables of a
   context cannot be interpreted, so they may be anything; those of threads are in dictionaries.
6. No application code runs: the walk inspects types and never calls objects.
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
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attributes_of

NEAR_MAX = 2_000
"""Maximum number of objects walked by rule 1 per actor."""
FAR_MAX = 150
"""Maximum number of objects walked by rule 2 per object, nearest first."""
UNDOING_MAX = 2_000
"""As :data:`FAR_MAX`, for an actor that can undo what others hold."""
ITEMS_MAX = 1_000
"""Maximum number of items read per container."""
MANY = 50
"""Above this number of items a container is read in bulk."""
ITEMS_BEHIND_MAX = 100_000
"""Maximum number of items read in bulk per container."""
_CALLABLES = (FunctionType, MethodType, *compat.COMPILED_FUNCTIONS, CellType, ref)
_OF_CONDITIONS = frozenset({*compat.COMPILED_FUNCTIONS, MethodType, dict})
_SUSPENDED = (CoroutineType, GeneratorType, AsyncGeneratorType)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_PLAIN: tuple[Any, ...] = (dict, *_CONTAINERS)
"""Methods of these end nothing: ``set.discard`` as a callback is not a way out by other items of the set."""
SKIPPED_CLASSES = (
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
_CONDITIONS = (threading.Condition, asyncio.Condition)
_TASK_LOCKS = (asyncio.Lock, asyncio.Semaphore)
_LOCKS_OF_ANYIO = frozenset({"Lock", "Semaphore"})

Leads = Callable[[Iterable[Any]], bool]
EndedBy = Callable[[Any, Leads], Iterable[Any]]
"""The objects that a callable ends. It may omit those that do not lead to a target."""
_objects_read: dict[int, tuple[Any, Iterable[Any] | None, tuple[Any, ...]]] = {}
"""Cache of this look, by object identity: the objects it names (None: none by itself), and the objects behind it."""


def clear_caches() -> None:
    """Clear the cache after a look."""
    _objects_read.clear()


class Reach:
    """A search for ``targets``, by identity, from one actor after another."""

    def __init__(
        self,
        targets: Iterable[Any],
        budget: Budget,
        ended_by: EndedBy = lambda *_: (),
        *,
        named_targets_count: bool = True,
        lines: Iterable[Any] = (),
    ) -> None:
        """``targets`` are kept alive during the search; ``ended_by`` returns what a callable ends (rule 2).

        ``named_targets_count``: a named target is held whatever its holder's code mentions (rule 1). ``lines``: see rule 3.
        """
        self._named_targets_count = named_targets_count
        self._lines = {id(one): one for one in lines}
        self._targets = {id(target): target for target in targets}
        self._budget = budget
        self._ended_by = ended_by
        self._found_behind_cache: dict[int, tuple[Any, frozenset[int]]] = {}
        self._barren: dict[int, Any] = {}
        self._ended_cache: dict[int, tuple[Any, frozenset[int]]] = {}
        self._opaque_cache: dict[int, tuple[type, bool | None]] = {}
        self._inside_cache: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._ended_behind_cache: dict[int, tuple[Any, frozenset[int]]] = {}
        self._among_cache: dict[int, tuple[Any, frozenset[int]]] = {}
        self._by_name_cache: dict[tuple[bool, tuple[int, ...]], tuple[Any, set[int]]] = {}

    def held(self, roots: Iterable[Any], *, ends: bool, borrowed: bool = False) -> set[int]:
        """The targets (identities) held by an actor with ``roots``.

        ``ends``: its code mentions ending things (rule 2). ``borrowed``: the roots are not its own (a module's globals).
        """
        roots = tuple(roots)
        if borrowed and not ends:
            return {id(root) for root in roots if id(root) in self._targets}
        found, objects = self._held_outright(roots, ends)
        for thing in objects:
            if not self._budget.step():
                break
            found |= (self._found_behind(thing) if ends else frozenset()) | self._ended_behind(thing)
        return found

    def held_by_name(self, named: Iterable[Any], *, ends: bool) -> set[int]:
        """As :meth:`held`, for objects named by code; cached, because many actors run the same code."""
        named = tuple(named)
        key = (ends, tuple(map(id, named)))
        if key not in self._by_name_cache:
            self._by_name_cache[key] = (named, self.held(named, ends=ends))
        return self._by_name_cache[key][1]

    def ended_by_calls(self, roots: Iterable[Any]) -> set[int]:
        """The targets (identities) that a callable found through one of ``roots`` ends (rule 2)."""
        found: set[int] = set()
        for root in roots:
            if not self._budget.step():
                break
            found |= self._ended_behind(root)
        return found

    def _held_outright(self, roots: Iterable[Any], ends: bool) -> tuple[set[int], list[Any]]:
        """Rule 1: the targets held outright, and the other objects held."""
        found: set[int] = set()
        objects: list[Any] = []
        seen: dict[int, Any] = {}
        todo = deque(roots)
        while todo and len(seen) < NEAR_MAX and self._budget.step():
            thing = todo.popleft()
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing  # kept alive, or its identity may be reused
            if id(thing) in self._targets:
                if self._named_targets_count or ends:
                    found.add(id(thing))
                todo.extend(compat.wrapped_objects(thing) or ())
            elif type(thing) is Context or not self.is_skipped(thing):
                near = self._names_of(thing)
                found |= self.ended_if_called(thing)
                if near is not None:
                    todo.extend(near)
                    found |= self._among_many(thing) if self._named_targets_count or ends else frozenset()
                    if type(thing) is FunctionType and not self._named_targets_count and thing.__dict__:
                        objects += thing.__dict__.values()
                elif is_open(thing):
                    objects.append(thing)
        return found, objects

    def _names_of(self, thing: Any) -> Iterable[Any] | None:
        """As :func:`named_by`; includes a context's variables, unless the search is for undoing (rule 5)."""
        return tuple(thing.values()) if self._named_targets_count and type(thing) is Context else _read_object(thing)[1]

    def is_target(self, thing: Any) -> bool:
        """Whether ``thing`` is one of the targets."""
        return id(thing) in self._targets

    def is_skipped(self, thing: Any) -> bool:
        """Whether the walk skips an object (rule 3). A search for undoing opens anything with attributes (rule 5)."""
        kind = type(thing)
        if id(thing) in self._lines:
            return True
        known = self._opaque_cache.get(id(kind))
        if known is None:
            known = self._opaque_cache[id(kind)] = (kind, self._is_class_skipped(kind))
        return _is_standard(thing) if known[1] is None else known[1]

    def _is_class_skipped(self, kind: type) -> bool | None:
        """The same for all objects of a class; None if it depends on the object, which is itself a class."""
        if issubclass(kind, threading.Thread) and not _is_standard(kind):
            return False
        if issubclass(kind, asyncio.Future) and not issubclass(kind, asyncio.Task):
            return False
        if self._named_targets_count or not issubclass(kind, _HAVING):
            return issubclass(kind, SKIPPED_CLASSES)
        return None if issubclass(kind, type) else False

    def _ended_behind(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets that callables found through one object end."""
        known = self._ended_behind_cache.get(id(root))
        if known is None:
            found: set[int] = set()
            for thing in self.objects_behind(root):
                found |= self.ended_if_called(thing)
            known = self._ended_behind_cache[id(root)] = (root, frozenset(found))
        return known[1]

    def ended_if_called(self, thing: Any) -> frozenset[int]:
        """Rule 2: the targets that one callable ends. Cached per search."""
        known = self._ended_cache.get(id(thing))
        if known is None:
            ended = self._ended_by(thing, self._leads_to_target)
            known = self._ended_cache[id(thing)] = (thing, frozenset().union(*map(self._found_behind, ended)))
        return known[1]

    def _leads_to_target(self, things: Iterable[Any]) -> bool:
        """Whether a target is found through one of ``things``."""
        return any(map(self._found_behind, things))

    def objects_behind(self, root: Any) -> Iterator[Any]:
        """Yield the objects found through one object, nearest first (rule 2)."""
        seen: dict[int, Any] = {}
        todo = deque([root] if not self.is_skipped(root) else [])
        while todo:
            thing = todo.popleft()
            if id(thing) in seen:
                continue
            if len(seen) >= FAR_MAX or not self._budget.step():
                break
            seen[id(thing)] = thing  # kept alive, or its identity may be reused
            yield thing
            known = self._inside_cache.get(id(thing))
            if known is None:
                within = tuple(one for one in _read_object(thing)[2] if not self.is_skipped(one))
                known = self._inside_cache[id(thing)] = (thing, within)
            todo.extend(known[1])

    def _found_behind(self, root: Any) -> frozenset[int]:
        """Rule 2: the targets found through one object, nearest first, or directly behind the last objects."""
        known = self._found_behind_cache.get(id(root))
        if known is not None:
            return known[1]
        found: set[int] = set()
        seen: dict[int, Any] = {}
        todo = deque([root])
        far_max = FAR_MAX if self._named_targets_count else UNDOING_MAX
        barren, targets, step = self._barren, self._targets, self._budget.step
        while todo:
            thing = todo.popleft()
            key = id(thing)
            if key in seen or key in barren:
                continue
            if len(seen) >= far_max or not step():
                todo.appendleft(thing)
                break
            seen[key] = thing  # kept alive, or its identity may be reused
            if key in targets:
                found.add(key)
                todo.extend(compat.wrapped_objects(thing) or ())
            elif not self._named_targets_count and issubclass(type(thing), ContextVar):
                found |= targets.keys()
            elif not self.is_skipped(thing):
                todo.extend(_read_object(thing)[2])
                found |= self._among_many(thing)
        if todo:
            found |= set() if self._named_targets_count else self._directly_behind(todo)
        elif not found:
            self._barren |= seen
        self._found_behind_cache[id(root)] = (root, frozenset(found))
        return self._found_behind_cache[id(root)][1]

    def _among_many(self, container: Any) -> frozenset[int]:
        """The targets among the items of a large container or directly behind them (rule 4). Cached per search."""
        if not _has_many(container):
            return frozenset()
        known = self._among_cache.get(id(container))
        if known is None:
            known = self._among_cache[id(container)] = (container, frozenset(self._read_many(container)))
        return known[1]

    def _read_many(self, container: Any) -> set[int]:
        items = iter(dict.values(container) if issubclass(type(container), dict) else container)
        found: set[int] = set()
        try:
            for _ in range(ITEMS_BEHIND_MAX // ITEMS_MAX):
                some = list(islice(items, ITEMS_MAX))
                if not some or not self._budget.step():
                    break
                found |= self._directly_behind(some)
        except RuntimeError:  # it changed during the read
            pass
        return found

    def _directly_behind(self, things: Iterable[Any]) -> set[int]:
        """The targets among some objects or what these reference, read in bulk (rule 4)."""
        near = [one for one in things if not issubclass(type(one), SKIPPED_CLASSES) or id(one) in self._targets]
        held = gc.get_referents(*near) if near else []
        frames = [one for one in held if type(one) is FrameType]  # on Python 3.10 a coroutine's frame holds its variables
        held += gc.get_referents(*frames) if frames else []
        names = gc.get_referents(*(one for one in held if type(one) is dict and not dict.__contains__(one, "__builtins__")))
        return {key for one in (near, held, names) for key in map(id, one) if key in self._targets}


def _is_standard(kind: type) -> bool:
    """Whether a class belongs to the standard library."""
    return compat.module_of(kind).partition(".")[0] in sys.stdlib_module_names


def _has_many(thing: Any) -> bool:
    """Whether ``thing`` is a container with many items, but not a module's namespace."""
    for kind in _PLAIN:
        if issubclass(type(thing), kind):
            return kind.__len__(thing) > MANY and not (kind is dict and dict.__contains__(thing, "__builtins__"))
    return False


def _read_object(thing: Any) -> tuple[Any, Iterable[Any] | None, tuple[Any, ...]]:
    """An object, the objects it names, and those found behind it. Cached per look."""
    known = _objects_read.get(id(thing))
    if known is None:
        near = named_by(thing)
        named = None if near is None else tuple(near)
        known = _objects_read[id(thing)] = thing, named, tuple(referents_of(thing)) if named is None else named
    return known


def referents_of(thing: Any) -> Iterable[Any]:
    """The objects referenced by ``thing``, if the walk may pass through it."""
    if not is_open(thing):
        return ()
    if issubclass(type(thing), _TASK_LOCKS):  # its waiters' futures are its own: nobody else cancels them
        return [one for name, one in (attribute_dictionary(thing) or {}).items() if name != "_waiters"]
    if _is_anyios_lock(thing):
        return ()
    found = gc.get_referents(thing)
    if issubclass(type(thing), _CONDITIONS):  # it keeps the ``release`` of its lock
        found = [one for one in (*found, *attributes_of(thing)) if type(one) not in _OF_CONDITIONS]
    return found


def _is_anyios_lock(thing: Any) -> bool:
    """Whether it is a lock or semaphore of anyio's, which has nothing but its waiters."""
    return type(thing).__name__ in _LOCKS_OF_ANYIO and compat.module_of(type(thing)) == "anyio._backends._asyncio"


def named_by(thing: Any, items_max: int = ITEMS_MAX) -> Iterable[Any] | None:
    """The objects that ``thing`` holds by rule 1; None for any other kind of object. Runs none of its code.

    ``items_max``: the number of items read of a container.
    """
    kind = type(thing)
    if issubclass(kind, _CALLABLES):
        carried = compat.bound_to(thing)
        return () if kind in compat.COMPILED_FUNCTIONS and carried and issubclass(type(carried[0]), _PLAIN) else carried
    if issubclass(kind, functools.partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if issubclass(kind, (*_SUSPENDED, asyncio.Future)):
        return _held_by_awaitable(thing)
    if issubclass(kind, dict):
        is_globals = dict.__contains__(thing, "__builtins__")
        items = (*_first(dict.values(thing), items_max), *_first(dict.keys(thing), items_max))
        return () if is_globals else [*items, *attributes_of(thing)]
    for container in _CONTAINERS:
        if issubclass(kind, container):
            return [*_first(container.__iter__(thing), items_max), *attributes_of(thing)]
    of_array = compat.items_of_array(thing)
    return compat.wrapped_objects(thing) if of_array is None else _first(of_array, items_max)


def _held_by_awaitable(thing: Any) -> Iterable[Any]:
    """The objects that a coroutine or generator holds, or what the end of a future calls; nothing for a task."""
    if not issubclass(type(thing), asyncio.Future):
        return compat.held_by_coroutine(thing)
    return () if issubclass(type(thing), asyncio.Task) else [callback for callback, _ in compat.callbacks_after(thing)]


def _first(things: Iterable[Any], items_max: int) -> list[Any]:
    try:
        return list(islice(things, items_max))
    except RuntimeError:  # it changed during the read
        return []


def is_open(thing: Any) -> bool:
    """Whether the walk may pass through an object (rule 3)."""
    if not gc.is_tracked(thing):
        return False
    if compat.module_of(type(thing)).startswith(("grpc", "stilltrue.")) or compat.waits_for_requests(thing):
        return False
    return compat.thread_of_connection(thing) is None
