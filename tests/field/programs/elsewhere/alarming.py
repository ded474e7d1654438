"""Alarms by which a process goes on later; only a near miss loads this module."""

import os
import signal
import threading

from field_program import FAR_SECONDS

_HANDLES = "import signal, sys; signal.signal(signal.SIGALRM, lambda *_: sys.exit())"
ENDS_LATER = f"{_HANDLES}; signal.setitimer(signal.ITIMER_REAL, {FAR_SECONDS})"
"""Code of a command that ends so."""


def release_later(lock: threading.Lock) -> None:
    """Let this process release the lock."""
    signal.signal(signal.SIGALRM, lambda *_: lock.release())
    signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)


def end_later() -> None:
    """Let this process end."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)
