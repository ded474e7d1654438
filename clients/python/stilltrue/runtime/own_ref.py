"""The agent's own weak references, distinguishable from others', which their owners may follow."""

from __future__ import annotations

from typing import Any
from weakref import ref


class OwnRef(ref[Any]):
    """A weak reference that no other code shares, as plain ones to the same object are shared."""

    __slots__ = ()
