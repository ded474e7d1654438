"""An object's attribute by name, without running anybody's code."""

from __future__ import annotations

from types import MemberDescriptorType, ModuleType
from typing import Any

UNKNOWN = object()
"""There is no such attribute, or only running code would show it."""


def attribute_dictionary(thing: Any) -> dict[str, Any] | None:
    """The object's own dictionary; None if it has none."""
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
    """The attribute that stands in the object's own dictionary or slots."""
    if issubclass(type(thing), ModuleType):
        return ModuleType.__getattribute__(thing, "__dict__").get(name, UNKNOWN)
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        own = None
    if isinstance(own, dict) and dict.__contains__(own, name):
        return dict.__getitem__(own, name)
    slot = next((kind.__dict__[name] for kind in type(thing).__mro__ if name in kind.__dict__), None)
    if type(slot) is not MemberDescriptorType:
        return UNKNOWN
    try:
        return slot.__get__(thing)
    except AttributeError:
        return UNKNOWN


def value_of(receiver: tuple[str, ...], names: dict[str, Any], others: dict[str, Any]) -> Any:
    """What a chain of names means, of which the first is among ``names`` or ``others``."""
    if not receiver:
        return UNKNOWN
    value = names.get(receiver[0], others.get(receiver[0], UNKNOWN))
    for name in receiver[1:]:
        value = attribute_of(value, name)
    return value
