"""Sends a signal to a process later; only a near miss loads this module."""

import os
import signal
import threading

from field_program import FAR_SECONDS, begin


def end_later(pid: int) -> None:
    """Terminate this process from another thread."""
    begin(_end, pid)


def _end(pid: int) -> None:
    threading.Event().wait(FAR_SECONDS)
    os.kill(pid, signal.SIGTERM)
