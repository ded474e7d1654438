"""A program's commands, one of which is chosen by its name."""

from __future__ import annotations

from typing import Any

LOCKS: list[Any] = []
CHANNELS: list[Any] = []


def do_release() -> None:
    for lock in LOCKS:
        lock.release()


def do_close() -> None:
    for channel in CHANNELS:
        channel.close()


def do_nothing() -> None:
    """Nothing."""
