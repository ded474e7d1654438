"""Caches results by the identity of a code object. ``lru_cache`` would hash the code, which reads all of its bytecode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
CODES_MAX = 10_000


def cached_by_code(function: Callable[Concatenate[CodeType, P], T]) -> Callable[Concatenate[CodeType, P], T]:
    """Cache ``function`` by code (and position); the cache is emptied when it exceeds :data:`CODES_MAX` entries."""
    find = cast("Callable[..., T]", function)
    known: dict[tuple[int, tuple[Any, ...]], tuple[CodeType, T]] = {}

    @functools.wraps(find)
    def kept(code: CodeType, /, *where: Any) -> T:
        key = (id(code), where)
        try:
            return known[key][1]
        except KeyError:
            if len(known) >= CODES_MAX:
                known.clear()
            found = find(code, *where)
            known[key] = (code, found)  # the code is kept, so its identity is not reused
            return found

    return cast("Callable[Concatenate[CodeType, P], T]", kept)
