"""Reads Django's connections to databases, which it keeps for each thread and lets no other thread use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.compat.threads import values_in_threads
from stilltrue.runtime.look.code.attributes import attribute_of

_BACKENDS = "django.db.backends."


def thread_of_connection(thing: Any) -> int | None:
    """The only thread that may use a Django connection; None if others may, or if it is something else."""
    if not module_of(type(thing)).startswith(_BACKENDS):
        return None
    ident, shared = attribute_of(thing, "_thread_ident"), attribute_of(thing, "_thread_sharing_count")
    return ident if type(ident) is int and type(shared) is int and not shared else None


def connections_of_threads() -> Iterator[tuple[int, Any]]:
    """The connections that only one thread may use, each with the thread's identity."""
    handler = getattr(sys.modules.get("django.db"), "connections", None)
    for thing in values_in_threads(attribute_of(attribute_of(handler, "_connections"), "_storage")):
        ident = thread_of_connection(thing)
        if ident is not None:
            yield ident, thing
