"""The agent's own weak references, distinguishable from the application's."""

from __future__ import annotations

from typing import Any
from weakref import ref


class OwnRef(ref[Any]):
    """A weak reference that no other code gets: Python shares plain ones to the same object."""

    __slots__ = ()
