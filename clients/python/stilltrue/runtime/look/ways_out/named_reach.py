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
5. Code calls what is in a collection or an attribute that it names (``for session in sessions: session.on_close()``): what that
   ends counts as well, for all other code of the program's own nothing else.
6. If there is more along the names than a look reads, anything may be there.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextvars import Context
from types import CoroutineType, FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.indirect_calls import GENERATORS, TAKING, items_in
from stilltrue.runtime.look.called_code.jobs import FUNCTIONS
from stilltrue.runtime.look.called_code.methods import FUNCTION_LIKE
from stilltrue.runtime.look.called_code.nearby import is_own_class
from stilltrue.runtime.look.code.attributes import attribute_dictionary, inherited
from stilltrue.runtime.look.ways_out.reach import Reach, is_open, named_by, referents_of

OBJECTS_MAX = 200_000
"""Maximum number of objects walked per actor, apart from texts and numbers, and of items read per container."""
BEYOND = "leads to more objects than a look reads"
_ATOMS = frozenset({type(None), bool, bytes, float, int, str})
_CALLED = (*FUNCTIONS, *compat.COMPILED_FUNCTIONS, *GENERATORS, CoroutineType)


class NamedTargets(NamedTuple):
    """The targets that were found, by identity; ``beyond``: why there may be others, as text (rule 6)."""

    targets: Collection[int] = ()
    beyond: str = ""


class NamedReach:
    """A search along names, for the targets of ``reach``, from one actor after another."""

    def __init__(self, reach: Reach, budget: Budget) -> None:
        self._reach = reach
        self._budget = budget
        self._barren: dict[frozenset[str], dict[int, Any]] = {}
        self._classes: dict[tuple[int, frozenset[str]], tuple[type, list[Any], tuple[Any, ...]]] = {}
        self._known: dict[tuple[frozenset[str], tuple[int, ...]], tuple[tuple[Any, ...], NamedTargets]] = {}

    def held(self, roots: Iterable[Any], names: frozenset[str], *, only_calls: bool = False) -> NamedTargets:
        """The targets that code with these ``names`` reaches from ``roots``, or that what it may call there ends.

        ``only_calls``: only the latter.
        """
        roots = tuple(roots)
        if not only_calls:
            return self._found_from(roots, names, only_calls=False)
        known = self._known.get(key := (names, tuple(map(id, roots))))  # hundreds of tasks may run the same code
        if known is None:
            known = self._known[key] = roots, self._found_from(roots, names, only_calls=True)
        return known[1]

    def _found_from(self, roots: tuple[Any, ...], names: frozenset[str], *, only_calls: bool) -> NamedTargets:
        barren = self._barren.setdefault(names, {})
        found: set[int] = set()
        seen: dict[int, Any] = {}
        todo = deque(roots)
        while todo:
            thing = todo.popleft()
            key = id(thing)
            if key in seen or key in barren:
                continue
            if len(seen) >= OBJECTS_MAX or _is_larger(thing) or not self._budget.step():
                return NamedTargets(found, BEYOND)
            seen[key] = thing  # kept alive, or its identity may be reused
            if self._reach.is_target(thing):
                found |= set() if only_calls else {key}
                continue
            if type(thing) in _CALLED:
                found |= self._reach.ended_if_called(thing)
            todo.extend(one for one in self._led_to(thing, names) if type(one) not in _ATOMS)
        barren.update(seen if not found else {})
        return NamedTargets(found)

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
        near = (thing.__self__,) if taking else named_by(thing, OBJECTS_MAX)
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


def _is_larger(thing: Any) -> bool:
    """Whether it is a collection with more items than are read."""
    kind = next((one for one in (dict, list, tuple, set, frozenset, deque) if issubclass(type(thing), one)), None)
    return kind is not None and kind.__len__(thing) > OBJECTS_MAX


def _is_proxy(kind: type) -> bool:
    found = (inherited(kind, name) for name in ("__getattr__", "__getattribute__"))
    return any(type(one) is FunctionType and is_application(one.__code__) for one in found)


def _is_read(base: type) -> bool:
    return compat.module_of(base).partition(".")[0] not in sys.stdlib_module_names
