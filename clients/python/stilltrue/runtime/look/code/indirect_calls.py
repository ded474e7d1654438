"""What code may call without naming a function: what operators call, and the functions kept in tables and attributes.

Rules:

1. Code that has an object may run the methods of its class that have double underscores: rule 2 of
   :mod:`~stilltrue.runtime.look.code.methods`.
2. Code that names a collection, or an attribute of an object, may call the functions in it: ``ACTIONS[what](call)``,
   ``settings.policy(call)``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of, inherited, named_values
from stilltrue.runtime.look.code.jobs import FUNCTIONS, slots_of
from stilltrue.runtime.look.code.methods import functions_of
from stilltrue.runtime.look.code.names import mentioned_in

_TABLE_MAX = 100
"""Maximum number of items read per collection."""
_OTHERS = sys.stdlib_module_names | {"grpc", "stilltrue"}
_COLLECTIONS: tuple[Any, ...] = (list, tuple, set, frozenset)


def attributes_named(thing: Any, words: frozenset[str]) -> Iterator[Any]:
    """The attributes of an object that some words name: its own, and those of its class that are not functions."""
    kind = type(thing)
    if issubclass(kind, type):
        yield from (one for word in words if type(one := inherited(thing, word)) is not FunctionType and one is not None)
        return
    if kind is not SimpleNamespace and compat.module_of(kind).partition(".")[0] in _OTHERS:
        return
    own = attribute_dictionary(thing) if kind.__dictoffset__ else None
    if own is not None:
        yield from (dict.__getitem__(own, word) for word in words if dict.__contains__(own, word))
    yield from (attribute_of(thing, name) for name in slots_of(kind) if name in words)  # type: ignore[arg-type]
    if kind is not SimpleNamespace:
        yield from (one for word in words if issubclass(type(one := inherited(kind, word)), (dict, *_COLLECTIONS)))


def used_by(code: CodeType, names: dict[str, Any], near: Iterable[Any], words: frozenset[str]) -> Iterable[Any]:
    """The objects that code with these ``words`` uses; of a module, whose variables are all its globals, only those named."""
    return named_values(words, names) if code.co_name == "<module>" else near


def functions_kept(objects: Iterable[Any], words: frozenset[str]) -> tuple[FunctionType, ...]:
    """The application's functions among those kept by some objects (rule 2)."""
    kept = (each for one in callables_kept(objects, words) for each in functions_of(_function_of(one)))
    return tuple(dict.fromkeys(one for one in kept if is_application(one.__code__)))


def callables_kept(objects: Iterable[Any], words: frozenset[str]) -> Iterator[Any]:
    """The callables in the collections among ``objects``, and in the attributes that some words name (rule 2)."""
    for thing in objects:
        yield from _in_collection(thing)
        for held in attributes_named(thing, words.union(*_names_of_methods(thing, words))):
            yield from (held,) if type(held) in FUNCTIONS else _in_collection(held)


def _names_of_methods(thing: Any, words: frozenset[str]) -> Iterator[Iterable[str]]:
    """The names that the application's methods read which some words name on an object."""
    kind = type(thing)
    if compat.module_of(kind).partition(".")[0] not in _OTHERS:
        found = (inherited(kind, word) for word in words)
        yield from (mentioned_in(one.__code__) for one in found if type(one) is FunctionType and is_application(one.__code__))


def _function_of(called: Any) -> Any:
    while type(called) is functools.partial:
        called = called.func
    return called


def _in_collection(thing: Any, *, deep: bool = True) -> Iterator[Any]:
    """The functions in a collection; ``deep``: and in the collections in it."""
    kind = type(thing)
    items: Iterable[Any] = ()
    if issubclass(kind, dict):
        items = dict.values(thing)
    else:
        items = next((one.__iter__(thing) for one in _COLLECTIONS if issubclass(kind, one)), ())
    try:
        some = list(islice(items, _TABLE_MAX))
    except RuntimeError:  # it changed during the read
        return
    for one in some:
        if type(one) in FUNCTIONS:
            yield one
        elif deep and issubclass(type(one), (dict, *_COLLECTIONS)):
            yield from _in_collection(one, deep=False)
