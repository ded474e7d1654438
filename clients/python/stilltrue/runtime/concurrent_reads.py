"""Safe reads of dictionaries and sets that finalizers and other threads may change at any moment.

A read is safe if nothing can interrupt it:

1. ``list(d)`` and ``list(d.values())`` are safe: they allocate nothing once they have begun.
2. ``list(d.items())`` is not: it allocates tuples, so a garbage collection may run a finalizer that changes the dictionary.
3. ``d.copy()`` is not in Python 3.11: a collection can run after the items are copied and before they are counted. Iterating
   over such a copy fails ("dictionary keys changed during iteration").
4. ``set.copy()`` is safe. Iterating over a ``WeakSet`` is not.
"""

from __future__ import annotations

from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
_GONE: Any = object()


def items_of(changing: dict[Key, Value]) -> list[tuple[Key, Value]]:
    """The items of ``changing``. Items added or removed meanwhile may or may not be included."""
    keys = list(dict.keys(changing))
    return [(key, value) for key in keys if (value := dict.get(changing, key, _GONE)) is not _GONE]


def live_members(among: Any) -> list[Any]:
    """The live members of a ``WeakSet``."""
    return [one for weak in among.data.copy() if (one := weak()) is not None]
