"""Weak references of the agent's own, which are told from those of others: what others have they may follow."""

from __future__ import annotations

from typing import Any
from weakref import ref


class OwnRef(ref[Any]):
    """A weak reference that no other code shares, as plain ones to the same object are shared."""

    __slots__ = ()
