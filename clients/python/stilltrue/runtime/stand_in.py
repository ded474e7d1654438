"""What stands before an object of gRPC's and passes for it: what it does not name, it passes through."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Stands before ``_inner``. ``isinstance`` is answered for both classes; a copy stands before the same object."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    @property  # type: ignore[misc]  # mypy takes __class__ for a plain attribute
    def __class__(self) -> type:
        """The inner object's class, as ``isinstance`` asks for it; ``type()`` tells the truth."""
        try:
            return type(self._inner)
        except AttributeError:
            return type(self)
