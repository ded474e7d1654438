"""Keeps what was read of a code object by its identity: to hash one, as ``lru_cache`` does, reads all of its bytecode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
CODES_MAX = 10_000


def kept_by_code(function: Callable[[CodeType, *Ts], T]) -> Callable[[CodeType, *Ts], T]:
    """``function`` of a code (and of where it stands), asked once for each as long as there are at most :data:`CODES_MAX`."""
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
            known[key] = (code, found)  # the code is kept, and with it its identity
            return found

    return kept
