"""Caches results by the identity of a code object. ``lru_cache`` would hash the code, which reads all of its bytecode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
CODES_MAX = 10_000
_caches: list[dict[object, Any]] = []


def forget_all() -> None:
    """Forget all results: what code is the application's has changed."""
    for cache in _caches:
        cache.clear()


def cached_by_code(function: Callable[Concatenate[CodeType, P], T]) -> Callable[Concatenate[CodeType, P], T]:
    """Cache ``function`` by code (and position); the cache is emptied when it exceeds :data:`CODES_MAX` entries."""
    find = cast("Callable[..., T]", function)
    known: dict[object, tuple[CodeType, T]] = {}
    _caches.append(known)

    def keep(key: object, code: CodeType, *where: Any) -> T:
        if len(known) >= CODES_MAX:
            known.clear()
        found = find(code, *where)
        known[key] = (code, found)  # the code is kept, so its identity is not reused
        return found

    # a look at a thousand threads calls such functions 30,000 times, so there is no general form for all of them

    def by_code(code: CodeType, /) -> T:
        try:
            return known[id(code)][1]
        except KeyError:
            return keep(id(code), code)

    def by_position(code: CodeType, at: Any, /) -> T:
        key = (id(code), at)
        try:
            return known[key][1]
        except KeyError:
            return keep(key, code, at)

    def by_all(code: CodeType, /, *where: Any) -> T:
        key = (id(code), where)
        try:
            return known[key][1]
        except KeyError:
            return keep(key, code, *where)

    parameters = cast("FunctionType", function).__code__.co_argcount
    ways: dict[int, Callable[..., T]] = {1: by_code, 2: by_position}
    kept = ways.get(parameters, by_all)
    return cast("Callable[Concatenate[CodeType, P], T]", functools.wraps(find)(kept))
