"""Classes of recorded handlers: one for each method, found by the application's handler, or by what the handler consists of.

A server usually has one handler for each method. But a generic handler (a proxy's, for example) may return a new one for each
call; then a class for each call would cost more time than the call's record, and tens of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any, Generic, TypeVar

CLASSES_MAX = 1_024
_COMPARABLE = frozenset({FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType, type, type(None)})
"""What the interpreter compares without the application's code: the same function, or the same method of the same object."""
Made = TypeVar("Made")


class HandlerClasses(Generic[Made]):
    """The classes that one server's interceptor has made."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Made]] = {}
        """By the identity of the application's handler: the handler, and its class."""
        self._alike: dict[tuple[Any, ...], Made] = {}

    def of(self, inner: Any, kind: str, make: Callable[[Any, str], Made]) -> Made:
        """The class for a handler that is not ``known``; ``kind`` is its arity."""
        parts = (kind, getattr(inner, kind), inner.request_deserializer, inner.response_serializer)
        comparable = all(type(part) in _COMPARABLE for part in parts[1:])
        made = self._alike.get(parts) if comparable else None
        if made is not None:
            return made
        made = make(inner, kind)
        if len(self.known) >= CLASSES_MAX:  # the application makes a new handler, with a new function, for each call
            self.clear()
        self.known[id(inner)] = (inner, made)
        if comparable:
            self._alike[parts] = made
        return made

    def clear(self) -> None:
        """Forget all classes."""
        self.known.clear()
        self._alike.clear()
