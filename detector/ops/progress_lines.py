"""Lines of progress on standard error; while a step runs, the last line shows for how long it has."""

from __future__ import annotations

import io
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

TERMINAL_SECONDS = 1.0
PIPE_SECONDS = 10.0
"""The first pause between two lines in a pipe; each further one is twice as long, since a service may wait for days."""
CLEAR = "\r\x1b[K"


class ProgressLines:
    """Lines on standard error. During a wait, a terminal shows the seconds; elsewhere the line is repeated, ever more rarely.

    The lines keep going to what standard error is now, even if file descriptor 2 is redirected for a while.
    """

    def __init__(self) -> None:
        self._file = _own_stderr()
        self._live = sys.stderr.isatty()
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Print a line, which ends a wait."""
        self.end()
        self._write(f"{text}\n")

    def wait(self, text: str) -> None:
        """Print a line, and show from now on how long ago that was, until the next line or :meth:`end`."""
        self.say(text)
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._tick, args=(text, self._ended), name="stilltrue-progress-lines", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the wait, if there is one."""
        if self._ended is None or self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._ended = self._thread = None
        if self._live:
            self._write(CLEAR)

    def _tick(self, text: str, ended: threading.Event) -> None:
        began = time.monotonic()
        for pause in pauses(live=self._live):
            if ended.wait(pause):
                return
            seconds = f"{time.monotonic() - began:.0f} s"
            self._write(f"{CLEAR}  {seconds}" if self._live else f"{text} {seconds}\n")

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def pauses(*, live: bool) -> Iterator[float]:
    """The seconds from one showing to the next."""
    return itertools.repeat(TERMINAL_SECONDS) if live else (PIPE_SECONDS * 2**times for times in itertools.count())


def _own_stderr() -> TextIO:
    """A copy of standard error, whose descriptor is its own; standard error itself if it has none (in a test, say)."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="backslashreplace")
    except io.UnsupportedOperation:
        return sys.stderr
