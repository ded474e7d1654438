"""The objects near some code: their classes, and what lies along the names that the code uses.

The walks are bounded, nearest first, and what they find is cached for a look.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Collection, Iterable
from types import FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application, is_of_own_module, is_own_code
from stilltrue.runtime.look.called_code.class_cache import cached_by_class
from stilltrue.runtime.look.called_code.indirect_calls import attributes_named, items_in
from stilltrue.runtime.look.called_code.jobs import FUNCTIONS
from stilltrue.runtime.look.called_code.methods import (
    Methods,
    class_attributes,
    constructors_of,
    functions_named_by,
    functions_of,
    implicit_methods,
    is_program_class,
    merge_methods,
    methods_of,
)
from stilltrue.runtime.look.code.attributes import own_attributes_named
from stilltrue.runtime.look.ways_out.reach import SKIPPED_CLASSES, is_open, named_by

KINDS_WALK_MAX = 500
"""Maximum number of objects walked from one actor to find the classes nearby, nearest first."""
_ALIKE_MAX = 5
"""Number of objects of one class per collection beyond which the others come last: they mostly lead to the same classes."""
_ALONG_MAX = 500
"""Maximum number of objects walked from the globals of one function, nearest first."""
_inside_cache: dict[int, tuple[Any, type | None, tuple[Any, ...], tuple[Any, ...]]] = {}
"""Cache of this look, by object identity: its class, if relevant, the objects directly inside, and those that come last."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _inside_cache.clear()


def classes_near(near: Iterable[Any]) -> tuple[type, ...]:
    """The application classes of ``near`` and of the objects inside, and those among these objects, nearest first."""
    kinds: dict[type, None] = {}
    seen: dict[int, Any] = {}
    todo, last = deque(thing for thing in near if not _is_skipped(thing)), deque[Any]()
    while (todo or last) and len(seen) < KINDS_WALK_MAX:
        thing = (todo or last).popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be reused
        known = _inside_cache.get(id(thing))
        if known is None:
            known = _inside_cache[id(thing)] = _read_inside(thing)
        if known[1] is not None:
            kinds[known[1]] = None
        todo.extend(known[2])
        last.extend(known[3])
    return tuple(kind for kind in kinds if is_own_class(kind))


def _read_inside(thing: Any) -> tuple[Any, type | None, tuple[Any, ...], tuple[Any, ...]]:
    if issubclass(type(thing), type):
        return thing, thing, tuple(one for one in class_attributes((thing,)) if not _is_skipped(one)), ()
    held = named_by(thing)
    counts = held is None or is_own_class(type(thing))  # a named tuple, or a class derived from ``dict``
    kind = type(thing) if counts and is_open(thing) else None
    inside = gc.get_referents(thing) if held is None and kind is not None else held or ()
    first, others = _first_of_each_class(one for one in inside if one is not kind and not _is_skipped(one))
    return thing, kind, tuple(first), tuple(others)


def _first_of_each_class(things: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Some objects, and apart from them those of application classes that have come often."""
    counts: dict[type, int] = {}
    first, others = list[Any](), list[Any]()
    for one in things:
        kind = type(one)
        if issubclass(kind, type) or not is_own_class(kind):
            first.append(one)
        else:
            counts[kind] = counts.get(kind, 0) + 1
            (first if counts[kind] <= _ALIKE_MAX else others).append(one)
    return first, others


def _is_skipped(thing: Any) -> bool:
    """Whether the walk skips an object. It passes through the program's own classes."""
    kind = type(thing)
    if issubclass(kind, type):
        return not is_program_class(thing)
    return _is_class_skipped(kind)


@cached_by_class
def _is_class_skipped(kind: type) -> bool:
    return issubclass(kind, SKIPPED_CLASSES) and not (issubclass(kind, threading.Thread) and is_own_class(kind))


def classes_named(objects: Iterable[Any], words: frozenset[str]) -> tuple[type, ...]:
    """The application classes of some objects, of the items of collections among them, and of their attributes in ``words``.

    Also of what a library's wrapper of a function carries: it enters the block of a ``contextlib.ContextDecorator``.
    """
    found: dict[type, None] = {}
    for thing in objects:
        for one in (thing, *items_in(thing), *attributes_named(thing, words), *_carried_by_wrapper(thing)):
            if is_own_class(type(one)):
                found[type(one)] = None
    return tuple(found)


def _carried_by_wrapper(thing: Any) -> tuple[Any, ...]:
    wraps = type(thing) is FunctionType and bool(thing.__closure__) and not is_own_code(thing.__code__)
    return compat.bound_to(thing) if wraps else ()


@cached_by_class
def is_own_class(kind: type) -> bool:
    """Whether a class has a method written by the application, or is made in a module of its own."""
    own = any(type(one) is FunctionType and is_application(one.__code__) for one in kind.__dict__.values())
    return own or is_of_own_module(kind)


class ObjectsAlong:
    """The methods known so far, and what is found along the names of all code reached so far, from the globals that it names.

    A function may return an object, so the names of its callers lead on.
    """

    def __init__(self, known: Methods) -> None:
        self.known = known
        self._classes: set[type] = set()
        self._spoken: set[str] = set()
        self._used: list[Any] = []
        self._walked: dict[int, Any] = {}
        self._given: list[FunctionType] = []

    def reached(
        self, classes: tuple[type, ...], words: frozenset[str], used: tuple[Any, ...]
    ) -> tuple[tuple[type, ...], tuple[FunctionType, ...]]:
        """Code was reached that names these ``classes`` and globals (``used``), by these ``words``.

        Returns the classes that are new, and further methods that code reached before has named.
        """
        self._spoken |= words
        if not classes and not used:
            return (), ()
        self._used += used
        kinds, found, given = _found_along(used, self._spoken, self._walked)
        made = tuple(dict.fromkeys(kind for kind in (*classes, *found) if kind not in self._classes))
        self._given += given
        return made, self._learn((*made, *(kind for kind in kinds if kind not in made)))

    def functions_at_the_end(self, *, unnamed: bool) -> tuple[FunctionType, ...]:
        """The functions found once the names of all code are known; none the next time, unless more code was reached.

        ``unnamed``: include the methods of the objects found that run without being named.
        """
        kinds, found, given = _found_along(self._used, self._spoken, {})
        self._used = []
        made = tuple(kind for kind in found if kind not in self._classes)
        learned = self._learn((*made, *(kind for kind in kinds if kind not in made)))
        return (*given, *learned, *constructors_of(made), *(self.take_given() if unnamed else ()))

    def take_given(self) -> list[FunctionType]:
        """The functions found in attributes since the last time."""
        given, self._given = self._given, []
        return given

    def _learn(self, kinds: tuple[type, ...]) -> tuple[FunctionType, ...]:
        more = tuple(kind for kind in kinds if kind not in self._classes)
        fresh = methods_of(more)
        self._classes.update(kinds)
        self._given += implicit_methods(more, blocks=False)
        self.known = merge_methods(self.known, fresh)
        return tuple(functions_named_by(frozenset(self._spoken), fresh)) if fresh else ()


def _found_along(
    objects: Iterable[Any], words: Collection[str], walked: dict[int, Any]
) -> tuple[tuple[type, ...], tuple[type, ...], tuple[FunctionType, ...]]:
    """The program's own classes of the objects found along attributes in ``words``, the classes among these, and the functions.

    Code may make an object of a class that it finds in a registry. ``walked``: the objects that have been walked already.
    """
    kinds: dict[type, None] = {}
    classes: dict[type, None] = {}
    functions: dict[FunctionType, None] = {}
    spoken = frozenset(words)
    todo, last = deque(one for one in objects if type(one) not in FUNCTIONS), deque[Any]()
    while (todo or last) and len(walked) < _ALONG_MAX:
        thing = (todo or last).popleft()
        if id(thing) in walked:
            continue
        walked[id(thing)] = thing  # kept alive, or its identity may be reused
        if not issubclass(type(thing), type):
            held = (*items_in(thing), *own_attributes_named(thing, words))
            kinds.update({type(thing): None} if is_program_class(type(thing)) else {})
        elif is_program_class(thing):
            held = (*items_in(thing), *attributes_named(thing, spoken))
            classes[thing] = None
        else:
            continue
        functions.update((each, None) for one in held if type(one) in FUNCTIONS for each in functions_of(one))
        first, others = _first_of_each_class(one for one in held if type(one) not in FUNCTIONS)
        todo.extend(first)
        last.extend(others)
    return tuple(kinds), tuple(classes), tuple(one for one in functions if is_own_code(one.__code__))
