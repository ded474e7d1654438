"""Shares that are lost: their pool still counts them, and nothing but the pool refers to what could give them back.

Rules:

1. The interpreter's own count of references decides, so that nothing is overlooked: a variable of any thread, what a function
   is in the middle of, a compiled extension, a garbage cycle that is not collected yet. What the library itself refers with
   is taken away from the count.
2. Whatever has weak references is not lost: somebody may follow one.
3. Where references are not counted at once (free-threaded Python) nothing is lost.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attributes_of

INSIDE_MAX = 300


def nobody_else_has(things: list[Any], index: int, inside: Iterable[Any] = (), weak: int = 0) -> bool:
    """Whether nothing refers to ``things[index]`` but the objects ``inside``, itself and the list (rules 1 and 2).

    It is given by its place, since a variable would count. ``weak`` of its weak references are the library's own.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or weakref.getweakrefcount(things[index]) > weak:
        return False
    known = _count_own(things[index], id(things[index])) + sum(_count(one, id(things[index])) for one in inside)
    return sys.getrefcount(things[index]) - _OURS == known


def inside(thing: Any, modules: tuple[str, ...], pool: Any) -> list[Any]:
    """The objects of a library's own ``modules`` that are found from ``thing``, each with its own dictionary.

    The walk does not enter the ``pool``, which leads to everything. No other container counts: it may be the application's.
    """
    found: dict[int, Any] = {}
    todo = _parts(thing)
    while todo and len(found) < INSIDE_MAX:
        one = todo.pop()
        if one is thing or one is pool or id(one) in found:
            continue
        if compat.module_of(type(one)).startswith(modules):
            found[id(one)] = one
            todo += _parts(one)
            if type(own := attribute_dictionary(one)) is dict:
                found[id(own)] = own
    return list(found.values())


def _parts(thing: Any) -> list[Any]:
    """What an object refers to, by its dictionary or its slots."""
    return [*attributes_of(thing), *gc.get_referents(thing)]


def _count_own(thing: Any, wanted: int) -> int:
    """How often an object refers to itself."""
    own = attribute_dictionary(thing)
    return _count(thing, wanted) + (0 if own is None else _count(own, wanted))


def _count(container: Any, wanted: int) -> int:
    """How often a container refers to the object with this identity."""
    return sum(identity == wanted for identity in map(id, gc.get_referents(container)))


_calibration = [object()]
_OURS = sys.getrefcount(_calibration[0])
"""References that the list and the call itself make."""
