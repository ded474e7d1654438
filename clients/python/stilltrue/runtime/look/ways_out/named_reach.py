"""Which targets an actor can reach along the names in its code, however far away they are.

The walk of :mod:`~stilltrue.runtime.look.ways_out.reach` takes every reference, so it stops after some hundred objects, and it
leaves classes out. The code of a watchdog leads further: to each service of a container, to each node of a tree, to the
attributes of a class. This walk goes where the code goes.

Rules:

1. It is for the program's own code that cancels, aborts or completes something, or closes or stops something. The code of
   installed packages names too much.
2. From an object it goes to the attributes that the code names: the object's own and those of its class. From a class likewise;
   its metaclass counts, too; from an enum also to whatever its members have. From a proxy (its class has ``__getattr__``), an
   object of the standard library, or one that is compiled, it goes everywhere.
3. From collections, callables and suspended coroutines it goes to all they hold; from a context, if the code names ``run``;
   from a method of a collection (``find = calls.get``), if it returns items.
4. Otherwise it passes through what that walk passes through.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextvars import Context
from types import FunctionType, MemberDescriptorType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.indirect_calls import TAKING, items_in
from stilltrue.runtime.look.called_code.methods import FUNCTION_LIKE
from stilltrue.runtime.look.called_code.nearby import is_own_class
from stilltrue.runtime.look.code.attributes import attribute_dictionary, inherited
from stilltrue.runtime.look.ways_out.reach import Reach, is_open, named_by, referents_of

OBJECTS_MAX = 20_000
"""Maximum number of objects walked per actor."""


class NamedReach:
    """A search along names, for the targets of ``reach``, from one actor after another."""

    def __init__(self, reach: Reach, budget: Budget) -> None:
        self._reach = reach
        self._budget = budget
        self._barren: dict[frozenset[str], dict[int, Any]] = {}
        self._classes: dict[tuple[int, frozenset[str]], tuple[type, list[Any], tuple[Any, ...]]] = {}

    def held(self, roots: Iterable[Any], names: frozenset[str]) -> set[int]:
        """The targets (identities) that code with these ``names`` reaches from ``roots``."""
        barren = self._barren.setdefault(names, {})
        found: set[int] = set()
        seen: dict[int, Any] = {}
        todo = deque(roots)
        while todo and len(seen) < OBJECTS_MAX and self._budget.step():
            thing = todo.popleft()
            key = id(thing)
            if key in seen or key in barren:
                continue
            seen[key] = thing  # kept alive, or its identity may be reused
            if self._reach.is_target(thing):
                found.add(key)
            else:
                todo.extend(self._led_to(thing, names))
        if not found and not todo:
            barren |= seen
        return found

    def _led_to(self, thing: Any, names: frozenset[str]) -> Iterable[Any]:
        kind = type(thing)
        if kind is Context:
            return tuple(thing.values()) if "run" in names else ()
        if issubclass(kind, type):
            own = (*self._of_class(thing, names)[1], *self._of_class(kind, names)[1], *items_in(thing))
            return own if is_own_class(thing) else ()
        if self._reach.is_skipped(thing):
            return ()
        taking = kind in compat.COMPILED_FUNCTIONS and thing.__name__ in TAKING
        near = (thing.__self__,) if taking else named_by(thing)
        if near is not None:
            return near
        if not is_open(thing):
            return ()
        return (
            tuple(self._attributes(thing, kind, names)) if is_own_class(kind) and not _is_proxy(kind) else referents_of(thing)
        )

    def _attributes(self, thing: Any, kind: type, names: frozenset[str]) -> Iterator[Any]:
        own = attribute_dictionary(thing) if kind.__dictoffset__ else None
        if own is not None:
            yield from [dict.__getitem__(own, name) for name in names if dict.__contains__(own, name)]
        _, values, slots = self._of_class(kind, names)
        yield from values
        for slot in slots:
            try:
                yield slot.__get__(thing)
            except AttributeError:  # not set
                continue

    def _of_class(self, kind: type, names: frozenset[str]) -> tuple[type, list[Any], tuple[Any, ...]]:
        """A class, its named attributes other than functions, and its named slots. Cached per search."""
        known = self._classes.get((id(kind), names))
        if known is None:
            table = {name: one for base in reversed(kind.__mro__) if _is_read(base) for name, one in base.__dict__.items()}
            named = [one for name, one in table.items() if name in names]
            slots = tuple(one for one in named if type(one) is MemberDescriptorType)
            values = [one for one in named if type(one) not in (*FUNCTION_LIKE, MemberDescriptorType)]
            known = self._classes[id(kind), names] = kind, values, slots
        return known


def _is_proxy(kind: type) -> bool:
    found = (inherited(kind, name) for name in ("__getattr__", "__getattribute__"))
    return any(type(one) is FunctionType and is_application(one.__code__) for one in found)


def _is_read(base: type) -> bool:
    return compat.module_of(base).partition(".")[0] not in sys.stdlib_module_names
