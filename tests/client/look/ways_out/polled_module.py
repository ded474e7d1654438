"""A module with a flag that its own loop polls, and that other modules set; and an application whose channel is a global."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

RUNNING = True
SETTINGS = SimpleNamespace(stop=False)
CHANNEL: Any = None


def runs(owned: Any, tick: Callable[[], None]) -> None:
    """Poll the module's own flag."""
    while RUNNING:
        tick()
    owned.close()


def runs_by_settings(owned: Any, tick: Callable[[], None]) -> None:
    """Poll the flag of an object of the module."""
    while not SETTINGS.stop:
        tick()
    owned.close()


class Application:
    """Closes the module's channel."""

    def close(self) -> None:
        """Close what only this code names."""
        CHANNEL.close()

    def count(self) -> int:
        """Close nothing."""
        return 0 if CHANNEL is None else 1


APPLICATION = Application()


def closes_when(go: threading.Event, far_seconds: float, interrupted: type[BaseException]) -> None:
    """Close it after a while."""
    if go.wait(far_seconds):
        raise interrupted
    APPLICATION.close()


def counts_when(go: threading.Event, far_seconds: float, interrupted: type[BaseException]) -> None:
    """Only count it."""
    if go.wait(far_seconds):
        raise interrupted
    APPLICATION.count()
