"""Wrappers that pass for a gRPC object: they forward attributes that they do not define."""

from __future__ import annotations

from typing import Any

_COPYING = 4
"""The pickle protocol that ``copy`` uses."""


class StandIn:
    """Wraps ``_inner``. An instance of both classes for ``isinstance``; a copy wraps the same object."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy in the making has none yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __copy__(self) -> Any:
        reduced: Any = object.__reduce_ex__(self, _COPYING)
        make, given, state = reduced[:3]
        made: Any = make(*given)
        for part in state if isinstance(state, tuple) else (state,):
            for name, value in (part or {}).items():
                object.__setattr__(made, name, value)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As the inner object: gRPC's objects refuse to be pickled, with their own message."""
        return self._inner.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property  # type: ignore[misc]  # mypy takes __class__ for a plain attribute
    def __class__(self) -> type:
        """The inner object's class, for ``isinstance``; ``type()`` still returns the wrapper's."""
        try:
            return type(self._inner)
        except AttributeError:
            return type(self)
