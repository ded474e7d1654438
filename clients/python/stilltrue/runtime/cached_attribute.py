"""An attribute that is computed when it is first read, without a lock.

``functools.cached_property`` has a lock for each property before Python 3.12, shared by all instances. A thread that computes
one of them would keep another, which holds the recorder's lock, from taking a cut: each would wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class CachedAttribute(Generic[T]):
    """A decorator. Two threads that read the attribute at the same time may both compute it; the last result is kept."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> CachedAttribute[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> CachedAttribute[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
