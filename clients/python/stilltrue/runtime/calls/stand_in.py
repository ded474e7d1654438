"""Wrappers that pass for a gRPC object: attributes they do not define are passed through."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Wraps ``_inner``. ``isinstance`` is true for both classes; a copy wraps the same object."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property  # type: ignore[misc]  # mypy takes __class__ for a plain attribute
    def __class__(self) -> type:
        """The inner object's class, for ``isinstance``; ``type()`` returns the wrapper's."""
        try:
            return type(self._inner)
        except AttributeError:
            return type(self)
