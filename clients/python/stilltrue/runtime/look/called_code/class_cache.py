"""Caches what a look has found out about a class, by the class's identity: its metaclass may define ``__hash__``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_caches: list[dict[int, tuple[type, Any]]] = []


def clear_caches() -> None:
    """Clear the caches after a look: a class may change."""
    for one in _caches:
        one.clear()


def cached_by_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """Cache ``function`` for the rest of the look."""
    known: dict[int, tuple[type, T]] = {}
    _caches.append(known)

    @functools.wraps(function)
    def by_class(kind: type, /) -> T:
        try:
            return known[id(kind)][1]
        except KeyError:
            found = function(kind)
            known[id(kind)] = kind, found  # the class is kept, so its identity is not reused
            return found

    return by_class
