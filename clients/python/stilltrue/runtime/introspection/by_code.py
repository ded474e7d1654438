"""Keeps what was read of a code object by its identity: to hash one, as ``lru_cache`` does, reads all of its bytecode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
CODES_MAX = 10_000


def kept_by_code(function: Callable[Concatenate[CodeType, P], T]) -> Callable[Concatenate[CodeType, P], T]:
    """``function`` of a code (and of where it stands), asked once for each as long as there are at most :data:`CODES_MAX`."""
    known: dict[tuple[Any, ...], tuple[CodeType, T]] = {}

    @functools.wraps(function)
    def kept(code: CodeType, /, *arguments: P.args, **settings: P.kwargs) -> T:
        key = (id(code), *arguments, *settings.items())
        found = known.get(key)
        if found is None:
            if len(known) >= CODES_MAX:
                known.clear()
            found = known[key] = (code, function(code, *arguments, **settings))  # the code is kept, and with it its identity
        return found[1]

    return kept
