"""A time limit for code on the main thread, so that a plug-in that never returns cannot block the rest."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OverrunError(BaseException):
    """The code exceeded its time limit. Not an ``Exception``, so that plug-ins do not catch it by accident."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OverrunError` in the block when it runs longer than ``seconds``; 0 means no limit.

    Uses signals: off the main thread, and on Windows, there is no limit.
    """
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise OverrunError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
