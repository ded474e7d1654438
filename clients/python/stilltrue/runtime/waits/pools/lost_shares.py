"""Lost shares: their pool still counts them as taken, but only the pool refers to the objects that could release them.

Rules:

1. The interpreter's own reference count decides, as it misses nothing: a variable of any thread, a temporary value of a running
   function, a compiled extension, a garbage cycle that is not collected yet. The library's own references are subtracted.
2. An object with weak references is not lost: any code may follow one.
3. If reference counts are deferred (free-threaded Python), nothing is lost.
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


def has_no_other_references(things: list[Any], index: int, inside: Iterable[Any] = (), weak: int = 0) -> bool:
    """Whether only the objects ``inside``, itself and the list refer to ``things[index]`` (rules 1 and 2).

    The thing is passed by its index because a variable would add a reference. ``weak``: the library's own weak references.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or weakref.getweakrefcount(things[index]) > weak:
        return False
    known = _count_own(things[index], id(things[index])) + sum(_count(one, id(things[index])) for one in inside)
    return sys.getrefcount(things[index]) - _OURS == known


def library_parts(thing: Any, modules: tuple[str, ...], pool: Any) -> list[Any]:
    """The objects reachable from ``thing`` whose classes belong to the library's ``modules``, each with its dictionary.

    Does not enter the ``pool``, which leads to everything, nor other containers, which may be the application's.
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
    """The objects to which ``thing`` refers from its dictionary or its slots."""
    return [*attributes_of(thing), *gc.get_referents(thing)]


def _count_own(thing: Any, wanted: int) -> int:
    """The number of references from an object to itself, if ``wanted`` is its identity."""
    own = attribute_dictionary(thing)
    return _count(thing, wanted) + (0 if own is None else _count(own, wanted))


def _count(container: Any, wanted: int) -> int:
    """The number of references from a container to the object with this identity."""
    return sum(identity == wanted for identity in map(id, gc.get_referents(container)))


_calibration = [object()]
_OURS = sys.getrefcount(_calibration[0])
"""The references from the list and the call itself."""
