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

INSIDE_MAX = 300


def nobody_else_has(things: list[Any], index: int, inside: Iterable[Any] = (), weak: int = 0) -> bool:
    """Whether nothing refers to ``things[index]`` but the objects ``inside``, itself and the list (rules 1 and 2).

    It is given by its place, since a variable would count. ``weak`` of its weak references are the library's own.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or weakref.getweakrefcount(things[index]) > weak:
        return False
    known = _count(things[index], id(things[index])) + sum(_count(one, id(things[index])) for one in inside)
    return sys.getrefcount(things[index]) - _OURS == known


def inside(thing: Any, modules: tuple[str, ...]) -> list[Any]:
    """The objects of a library's own ``modules`` that are found from ``thing``, without it, and plain containers between."""
    found: dict[int, Any] = {}
    todo = gc.get_referents(thing)
    while todo and len(found) < INSIDE_MAX:
        one = todo.pop()
        own = compat.module_of(type(one)).startswith(modules) or type(one) in _PLAIN
        if own and one is not thing and id(one) not in found:
            found[id(one)] = one
            todo += gc.get_referents(one)
    return list(found.values())


def _count(container: Any, wanted: int) -> int:
    """How often a container refers to the object with this identity."""
    return sum(identity == wanted for identity in map(id, gc.get_referents(container)))


_PLAIN = (dict, list, tuple, set, frozenset)
_calibration = [object()]
_OURS = sys.getrefcount(_calibration[0])
"""References that the list and the call itself make."""
