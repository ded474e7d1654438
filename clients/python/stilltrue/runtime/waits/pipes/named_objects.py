"""The objects of some classes to which the innermost functions of the application refer.

They are variables, attributes or items of these, or globals that the functions name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from inspect import CO_OPTIMIZED
from itertools import dropwhile, islice, takewhile
from types import FrameType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attributes_of

FRAMES_MAX, VALUES_MAX, ITEMS_MAX = 4, 200, 50
_COLLECTIONS = (list, tuple, dict)


def objects_named(frames: Sequence[FrameType], kinds: type | tuple[type, ...]) -> Iterator[Any]:
    """The objects of these classes, for a thread's frames, innermost first. What a library is doing is left out."""
    own = dropwhile(lambda one: not is_application(one.f_code), frames)
    for frame in islice(takewhile(lambda one: is_application(one.f_code), own), FRAMES_MAX):
        named = (frame.f_globals.get(name) for name in frame.f_code.co_names)
        variables = variables_of(frame).values() if frame.f_code.co_flags & CO_OPTIMIZED else ()
        values = list(islice((*variables, *named), VALUES_MAX))
        within = list(islice((each for one in values for each in _within(one)), VALUES_MAX))
        items = (each for one in within if type(one) in _COLLECTIONS for each in _within(one))
        yield from (one for one in (*values, *within, *islice(items, VALUES_MAX)) if issubclass(type(one), kinds))


def _within(value: Any) -> Sequence[Any]:
    """The attributes of an object, or the items of a collection; nothing of a class, a module or a function."""
    if type(value) in _COLLECTIONS:
        with suppress(RuntimeError):  # another thread has changed it meanwhile
            return list(islice(value.values() if type(value) is dict else value, ITEMS_MAX))
        return ()
    return () if issubclass(type(value), type | ModuleType | FunctionType) else attributes_of(value)
