"""Reads which objects Python's garbage collector knows, without keeping another thread's unfinished tuples alive.

``tuple(iterable)`` resizes its tuple while the items come, so another thread may be between two of them. If anything else
refers to the tuple when that thread goes on, Python raises ``SystemError`` there (bpo-15108). But the collector's lists contain
such tuples. So each list is read, searched and emptied here within one call of compiled code: the interpreter switches threads
only between instructions.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from itertools import chain, compress, starmap, tee
from operator import eq, is_, is_not
from typing import Any

_types, _ids = partial(map, type), partial(map, id)
_lengths = partial(map, len)
_contents = partial(map, gc.get_referents)
_are_tuples, _are_others = partial(map, partial(is_, tuple)), partial(map, partial(is_not, tuple))


def objects_of(kinds: frozenset[type]) -> list[Any]:
    """All objects of exactly these classes, none of which is ``tuple``. No code of any class runs."""
    found = tee(map(gc.get_objects, (None,)), 3)
    are_wanted = partial(map, frozenset(map(id, kinds)).__contains__)
    of_kinds = _selected(found[0], map(are_wanted, map(_ids, map(_types, found[1]))))
    return list(chain(of_kinds, _emptied(found[2])))


def referrers_of(things: tuple[Any, ...]) -> list[Any]:
    """As ``gc.get_referrers(*things)``, without tuples that have room for further items.

    One that is being made of ``things`` and happens to be full is not recognized, and is kept until the caller drops the list.
    """
    found = tee(starmap(gc.get_referrers, (things,)), 5)
    others = _selected(found[0], map(_are_others, map(_types, found[1])))
    tuples = tee(map(list, starmap(compress, zip(found[2], map(_are_tuples, map(_types, found[3])), strict=True))), 4)
    lengths = zip(map(_lengths, tuples[1]), map(_lengths, map(_contents, tuples[2])), strict=True)
    finished = _selected(tuples[0], starmap(partial(map, eq), lengths))
    return list(chain(others, finished, _emptied(found[4], tuples[3])))


def _selected(lists: Iterator[list[Any]], flags: Iterator[Iterator[bool]]) -> Iterator[Any]:
    return chain.from_iterable(starmap(compress, zip(lists, flags, strict=True)))


def _emptied(*lists: Iterator[list[Any]]) -> Iterator[Any]:
    """Empties the lists, and yields nothing."""
    return filter(None, map(list.clear, chain(*lists)))
