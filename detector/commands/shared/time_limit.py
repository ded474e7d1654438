"""A limit in time for work on the main thread, so that a plug-in that never ends cannot hold up the rest."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OverrunError(BaseException):
    """The work took longer than it may. No ``Exception``: a plug-in that catches those must not catch this."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OverrunError` in the block when it runs longer than ``seconds``; 0 is no limit.

    Works where signals do (the main thread, not on Windows); elsewhere the block runs unlimited.
    """
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(_number: int, _frame: FrameType | None) -> None:
        raise OverrunError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
