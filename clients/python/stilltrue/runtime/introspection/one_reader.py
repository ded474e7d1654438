"""Agents of one process read it one at a time: what one holds meanwhile is a reference that another cannot explain."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_locks = [threading.Lock()]


@contextmanager
def reading(seconds_max: float) -> Iterator[bool]:
    """Whether no other agent reads the process; waits for that up to ``seconds_max``."""
    lock = _locks[0]
    alone = lock.acquire(timeout=seconds_max)
    try:
        yield alone
    finally:
        if alone:
            lock.release()


def _renew() -> None:
    _locks[0] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
