"""Waits for a lock for a time."""

from typing import Any

from field_program import FAR_SECONDS


def try_in_time(lock: Any) -> None:
    """Take it, or not."""
    if lock.acquire(timeout=FAR_SECONDS):
        lock.release()
