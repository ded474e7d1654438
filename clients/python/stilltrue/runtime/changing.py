"""Reads dictionaries and sets that finalizers and other threads change at any moment: in steps that nothing can interrupt.

1. ``list(d)`` and ``list(d.values())`` are such steps: they make no objects after they have begun.
2. ``list(d.items())`` makes tuples: a garbage collection in between may run a finalizer that changes the dictionary.
3. ``d.copy()`` is none in Python 3.11: a collection can run after it has copied the items and before it has counted them. Such
   a copy cannot be walked through ("dictionary keys changed during iteration").
4. ``set.copy()`` is one. The iteration of a ``WeakSet`` is not.
"""

from __future__ import annotations

from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
_GONE: Any = object()


def items_of(changing: dict[Key, Value]) -> list[tuple[Key, Value]]:
    """The items of ``changing``; those that go or come meanwhile may be among them or not."""
    keys = list(dict.keys(changing))
    return [(key, value) for key in keys if (value := dict.get(changing, key, _GONE)) is not _GONE]


def alive_in(among: Any) -> list[Any]:
    """What is in a ``WeakSet``."""
    return [one for weak in among.data.copy() if (one := weak()) is not None]
