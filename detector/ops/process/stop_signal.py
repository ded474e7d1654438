"""Ends a command cleanly on SIGINT or SIGTERM, however many of them arrive."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue


class StopSignal:
    """A request to stop, which a signal handler may set.

    With a ``threading.Event`` a second signal would hang the process: its handler interrupts the first one inside ``set()``,
    and waits there for a lock that the interrupted code holds. A ``SimpleQueue`` may be interrupted anywhere.
    """

    def __init__(self) -> None:
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._seen = False

    def set(self) -> None:
        """Request the stop."""
        self._signals.put(None)

    def is_set(self) -> bool:
        """Whether the stop has been requested."""
        return self._seen or not self._signals.empty()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the request, at most ``seconds`` (None: forever). Returns whether the stop has been requested."""
        if not self._seen:
            try:
                self._signals.get(timeout=seconds)
            except Empty:
                return False
            self._seen = True
        return True


@contextmanager
def stopped_by_signals() -> Iterator[StopSignal]:
    """Yield a request that SIGINT and SIGTERM set until the block ends."""
    stop = StopSignal()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """In the main thread, let Ctrl-C end the process at once until the block ends: it waits in C, where no handler runs.

    Not SIGTERM: for process 1 of a container the default action is to ignore it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
