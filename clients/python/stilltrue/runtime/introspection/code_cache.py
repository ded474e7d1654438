"""Caches results by the identity of a code object. ``lru_cache`` would hash the code, which reads all of its bytecode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
CODES_MAX = 10_000


def cached_by_code(function: Callable[[CodeType, *Ts], T]) -> Callable[[CodeType, *Ts], T]:
    """Cache ``function`` by code (and position); the cache is emptied when it exceeds :data:`CODES_MAX` entries."""
    known: dict[tuple[int, tuple[Any, ...]], tuple[CodeType, T]] = {}

    @functools.wraps(function)
    def kept(code: CodeType, /, *where: *Ts) -> T:
        key = (id(code), where)
        try:
            return known[key][1]
        except KeyError:
            if len(known) >= CODES_MAX:
                known.clear()
            found = function(code, *where)
            known[key] = (code, found)  # the code is kept, so its identity is not reused
            return found

    return kept
