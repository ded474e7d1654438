"""A time limit for code on the main thread, so that a plug-in that never returns cannot block the rest."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any


class OverrunError(BaseException):
    """The code exceeded its time limit. Not an ``Exception``, so that plug-ins do not catch it by accident."""


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Raise :class:`OverrunError` in the block when it runs longer than ``seconds``; 0 means no limit.

    Uses signals: off the main thread, and on Windows, there is no limit.
    """
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return _TimeLimit(seconds)


class _TimeLimit(AbstractContextManager[None]):
    """Not a generator: if the time is up before the block begins, one would stay suspended and later remove another limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._expire)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _expire(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, self._before)
        raise OverrunError(f"took longer than {self._seconds:g} s")
