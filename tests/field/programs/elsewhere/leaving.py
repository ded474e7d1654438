"""Keeps how a lock is left, and leaves it later."""

import threading
from typing import Any

from field_program import FAR_SECONDS

_kept: list[Any] = []


def keep(lock: Any) -> None:
    """Keep it."""
    _kept.append(lock.__exit__)


def leave_later() -> None:
    """Leave what is kept."""
    threading.Event().wait(FAR_SECONDS)
    for leave in _kept:
        leave(None, None, None)
