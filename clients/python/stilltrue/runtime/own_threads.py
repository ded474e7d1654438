"""Leaves the agent's threads out where a program lists its threads: one that joins all of them would wait forever.

They are those that the agent starts, by their names, and those that gRPC starts for the agent's own channel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

PREFIX = "stilltrue-"
"""How the names of the agent's threads begin."""
all_threads: Callable[[], list[threading.Thread]] = threading.enumerate
"""As ``threading.enumerate`` without the agent: every thread, the agent's own too."""
_of_grpc: WeakValueDictionary[int, threading.Thread] = WeakValueDictionary()
"""By ``id``: a program's threads may have a hash of their own."""
_earlier: list[frozenset[int]] = []
"""While the agent makes a call: the threads (``id``) that there were before it."""


def application_threads() -> list[threading.Thread]:
    """As ``threading.enumerate``, without the agent's threads."""
    return [one for one in all_threads() if not _is_own(one)]


def count_of_application_threads() -> int:
    """As ``threading.active_count``, without the agent's threads."""
    return len(application_threads())


LISTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "enumerate": (all_threads, application_threads),
    "active_count": (threading.active_count, count_of_application_threads),
}
"""The functions of ``threading`` that list threads, by name: each and its stand-in."""


def hide() -> None:
    """Put the stand-ins into ``threading``. Idempotent; what another library has put there stays."""
    for name, (original, stand_in) in LISTINGS.items():
        if getattr(threading, name) is original:
            setattr(threading, name, stand_in)


@contextmanager
def starting() -> Iterator[None]:
    """The threads that gRPC starts in this block are the agent's. (So is one that it starts meanwhile for another thread.)"""
    _earlier.append(frozenset(map(id, all_threads())))
    try:
        yield
    finally:
        _of_grpc.update({id(one): one for one in all_threads() if _has_begun(one)})
        _earlier.pop()


def _has_begun(one: threading.Thread) -> bool:
    """Whether it is a thread of gRPC's that has begun since the agent began to make a call."""
    if not any(id(one) not in earlier for earlier in list(_earlier)):
        return False
    return str(getattr(vars(one).get("_target"), "__module__", "")).startswith("grpc.")


def _is_own(one: threading.Thread) -> bool:
    if type(one) is not threading.Thread:
        return False
    return _of_grpc.get(id(one)) is one or _has_begun(one) or str(vars(one).get("_name", "")).startswith(PREFIX)
