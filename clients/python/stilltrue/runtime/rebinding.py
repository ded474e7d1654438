"""Replaces functions in every module that refers to them, as after ``from grpc import insecure_channel``.

The search covers each loaded module's attributes, the values of its dictionaries, the attributes of its classes, the defaults
of its functions, and any ``functools.partial`` in these places.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime.concurrent_reads import items_of

DICTIONARY_SIZE_MAX = 1_000
"""Larger dictionaries of a module are taken for data and skipped."""
LEFT_OUT = ("grpc", "stilltrue")
_PLAIN_KINDS = (str, int, float, bool, bytes, tuple, list, set, frozenset, type(None), ModuleType, BuiltinFunctionType)
_PLAIN = frozenset(map(id, _PLAIN_KINDS))
"""The ids of the types of most values, which refer to nothing that is searched for here. Kinds are compared by their ids: a
type whose own type defines ``__eq__`` may be unhashable."""
_PARTIAL = frozenset({id(functools.partial)})
_WRAPPED = frozenset({id(functools.partial), id(staticmethod)})

Undo = Callable[[], object]


def rebind(replacements: Mapping[Any, Any]) -> list[Undo]:
    """Replace each original; return functions that undo it. A place that cannot be changed is skipped."""
    by_id = {id(original): replacement for original, replacement in replacements.items()}
    undo: list[Undo] = []
    for name, module in items_of(sys.modules):
        if issubclass(type(module), ModuleType) and name.partition(".")[0] not in LEFT_OUT:
            with contextlib.suppress(Exception):  # fail open: a module may do anything on access
                # bypasses a lazy module's own __getattribute__, which would load it
                names: dict[str, Any] = object.__getattribute__(module, "__dict__")
                _Places(by_id, name, undo).in_dictionary(names, deep=True)
    return undo


class _Places:
    """The places of one module that may refer to an original."""

    def __init__(self, by_id: Mapping[int, Any], module: str, undo: list[Undo]) -> None:
        self._by_id = by_id
        self._module = module
        self._undo = undo

    def in_dictionary(self, names: dict[Any, Any], *, deep: bool) -> None:
        values = list(dict.values(names))
        if not (self._by_id.keys().isdisjoint(map(id, values)) and _PARTIAL.isdisjoint(map(id, map(type, values)))):
            for key, value in items_of(names):
                new = self._by_id.get(id(value))
                if new is not None:
                    names[key] = new
                    self._undo.append(functools.partial(_put_back, names, key, new, value))
                elif type(value) is functools.partial:
                    self._in_partial(value)
        for value in values if deep else ():
            self._within(value, type(value))

    def _within(self, value: Any, kind: type) -> None:
        """``kind``: the type of ``value``, whose own ``__class__`` is not asked: a proxy would load what it stands for."""
        if kind is FunctionType:
            self._in_defaults(value)
        elif kind is dict:
            if len(value) <= DICTIONARY_SIZE_MAX:
                self.in_dictionary(value, deep=False)
        elif id(kind) not in _PLAIN and issubclass(kind, type) and value.__module__ == self._module:
            self._in_class(value)

    def _in_class(self, owner: type) -> None:
        values = list(vars(owner).values())
        if not (self._by_id.keys().isdisjoint(map(id, values)) and _WRAPPED.isdisjoint(map(id, map(type, values)))):
            self._in_attributes(owner)
        for value in values:
            if type(value) is FunctionType:
                self._in_defaults(value)

    def _in_attributes(self, owner: type) -> None:
        for name, value in list(vars(owner).items()):
            inner = value.__func__ if isinstance(value, staticmethod) else value
            new = self._by_id.get(id(inner))
            if new is not None:
                setattr(owner, name, staticmethod(new) if isinstance(value, staticmethod) else new)
                self._undo.append(functools.partial(setattr, owner, name, value))
            elif type(inner) is functools.partial:
                self._in_partial(inner)
            elif inner is not value and type(inner) is FunctionType:
                self._in_defaults(inner)

    def _in_defaults(self, function: FunctionType) -> None:
        defaults = function.__defaults__
        if defaults and not self._by_id.keys().isdisjoint(map(id, defaults)):
            function.__defaults__ = tuple(self._by_id.get(id(one), one) for one in defaults)
            self._undo.append(functools.partial(setattr, function, "__defaults__", defaults))

    def _in_partial(self, value: functools.partial[Any]) -> None:
        new = self._by_id.get(id(value.func))
        if new is not None:
            before = value.func
            _point(value, new)
            self._undo.append(functools.partial(_point, value, before))


def _point(value: functools.partial[Any], func: Any) -> None:
    """Make a partial call another function with the same arguments."""
    value.__setstate__((func, value.args, value.keywords, value.__dict__ or None))  # type: ignore[attr-defined]  # not in the stubs


def _put_back(names: dict[Any, Any], key: Any, new: Any, value: Any) -> None:
    if names.get(key) is new:
        names[key] = value
