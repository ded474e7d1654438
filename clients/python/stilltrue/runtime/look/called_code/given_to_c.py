"""The functions that code in C may call at any time, on a thread that Python does not show.

A driver, a sound card or a message broker's library calls what it was given through ``ctypes.CFUNCTYPE(...)`` or cffi's
``ffi.callback()``. Whoever waits in C has no frame, so what such a function does is always a way out.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.waits.orphaned_locks.census import can_list_objects

_known: list[tuple[Any, ...]] = []
"""Cache of this look."""


def clear_caches() -> None:
    """Clear the cache after a look."""
    _known.clear()


def functions_given_to_c() -> tuple[Any, ...]:
    """These functions; none if the process has too many objects to list."""
    if not _known:
        _known.append(tuple(_read()))
    return _known[0]


def _read() -> list[Any]:
    kinds = compat.kinds_of_c_callbacks()
    if not kinds or not can_list_objects():
        return []
    with no_collection:
        return [function for one in objects_of(kinds) for function in compat.called_by_c(one)]
