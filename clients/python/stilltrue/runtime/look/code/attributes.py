"""Reads an object's attributes without running any code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MemberDescriptorType, ModuleType
from typing import Any

UNKNOWN = object()
"""The attribute does not exist, or only running code would show it."""
_LIBRARIES = sys.stdlib_module_names | {"grpc", "stilltrue"}
_MODULES_MAX = 50


def attribute_dictionary(thing: Any) -> dict[str, Any] | None:
    """The object's own dictionary, or None."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return own if type(own) is dict else None


def attributes_of(thing: Any) -> tuple[Any, ...]:
    """The values in the object's own dictionary."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return ()
    return tuple(dict.values(own)) if isinstance(own, dict) else ()


def attribute_of(thing: Any, name: str) -> Any:
    """The attribute in the object's own dictionary or slots."""
    if issubclass(type(thing), ModuleType):
        return ModuleType.__getattribute__(thing, "__dict__").get(name, UNKNOWN)
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        own = None
    if isinstance(own, dict) and dict.__contains__(own, name):
        return dict.__getitem__(own, name)
    slot = inherited(type(thing), name)
    if type(slot) is not MemberDescriptorType:
        return UNKNOWN
    try:
        return slot.__get__(thing)
    except AttributeError:
        return UNKNOWN


def own_attributes_named(thing: Any, words: Collection[str]) -> Iterator[Any]:
    """The attributes in the object's own dictionary or slots that some words name."""
    own = attribute_dictionary(thing) if type(thing).__dictoffset__ else None
    if own is not None:
        yield from [value for name, value in list(dict.items(own)) if name in words]
    yield from (attribute_of(thing, name) for name in slots_of(type(thing)) if name in words)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1_000)
def slots_of(kind: type) -> tuple[str, ...]:
    """The names of the slots of a class and its bases."""
    return tuple(name for one in kind.__mro__ for name, slot in vars(one).items() if type(slot) is MemberDescriptorType)


def inherited(kind: type, name: str, default: Any = None) -> Any:
    """The attribute of a class or of its nearest base that has it, as it is stored there."""
    for base in kind.__mro__:  # a loop: a look asks a hundred thousand times
        if name in base.__dict__:
            return base.__dict__[name]
    return default


def named_values(words: Iterable[str], names: Mapping[str, Any], attributes: Iterable[str] | None = None) -> tuple[Any, ...]:
    """The values of those ``words`` that are among ``names``, and what the application modules among these have.

    ``attributes``: the names that are read of a module; the ``words`` if not given.
    """
    every = tuple(words)
    found = [names[word] for word in every if word in names]
    modules = [one for one in found if type(one) is ModuleType]
    if not modules:
        return tuple(found)
    every = every if attributes is None else tuple(attributes)
    for module in modules:  # grows: a package names its modules
        space = ModuleType.__getattribute__(module, "__dict__")
        if len(modules) <= _MODULES_MAX and not _is_library(space):
            within = [space[word] for word in every if word in space]
            modules += (one for one in within if type(one) is ModuleType and one not in modules)
            found += within
    return tuple(found)


def _is_library(space: Mapping[str, Any]) -> bool:
    """Whether it is the namespace of a module of the standard library, of gRPC or of the agent."""
    name = space.get("__name__")
    return type(name) is not str or name.partition(".")[0] in _LIBRARIES


def value_of(receiver: tuple[str, ...], names: dict[str, Any], others: dict[str, Any]) -> Any:
    """The object that a chain of names refers to; the first name is looked up in ``names``, then in ``others``."""
    if not receiver:
        return UNKNOWN
    value = names.get(receiver[0], others.get(receiver[0], UNKNOWN))
    for name in receiver[1:]:
        value = attribute_of(value, name)
    return value
