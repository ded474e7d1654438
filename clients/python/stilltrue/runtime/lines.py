"""What the agent's own threads log: written by a thread that does nothing else, as the log's locks are the application's.

A handler's lock, or that of ``logging`` itself, may be part of the very deadlock that the agent has to report.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

LINES_MAX = 100
"""Lines that wait to be written; further ones are dropped."""
END_SECONDS_MAX = 0.25


@dataclass(frozen=True, slots=True)
class _Line:
    level: int
    text: str
    arguments: tuple[object, ...]
    failure: Any


class Lines:
    """The lines of one process: while it has no agent that runs, each is written where it is said."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("stilltrue")
        self._lock = threading.Lock()
        self._agents = 0
        self._process = 0
        self._lines: SimpleQueue[_Line | None] = SimpleQueue()
        self._writer = threading.Thread()

    def begin(self) -> None:
        """An agent runs from now on."""
        if self._process != os.getpid():  # the writer, and who had the lock, stayed behind in the parent
            self._lock = threading.Lock()
            self._agents, self._lines, self._process = 0, SimpleQueue(), os.getpid()
        with self._lock:
            self._agents += 1
            if self._agents == 1:
                self._writer = threading.Thread(target=self._write_all, args=(self._lines,), name="stilltrue-log", daemon=True)
                self._writer.start()

    def end(self) -> None:
        """An agent has ended; with the last one, wait a little until all is written."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._agents -= 1
            writer = None if self._agents else self._writer
            if writer is not None:
                self._lines.put(None)
        if writer is not None:
            writer.join(END_SECONDS_MAX)

    def debug(self, text: str, *arguments: object) -> None:
        """For those who look for a fault."""
        self._say(_Line(logging.DEBUG, text, arguments, None))

    def info(self, text: str, *arguments: object) -> None:
        """What happens in the course of things."""
        self._say(_Line(logging.INFO, text, arguments, None))

    def warning(self, text: str, *arguments: object) -> None:
        """A warning."""
        self._say(_Line(logging.WARNING, text, arguments, None))

    def exception(self, text: str, *arguments: object) -> None:
        """A failure, with the traceback of the exception that is being handled."""
        self._say(_Line(logging.ERROR, text, arguments, sys.exc_info()))

    def _say(self, line: _Line) -> None:
        if not self._agents or self._process != os.getpid():
            self._write(line)
        elif self._lines.qsize() < LINES_MAX:
            self._lines.put(line)

    def _write_all(self, lines: SimpleQueue[_Line | None]) -> None:
        while (line := lines.get()) is not None:
            self._write(line)

    def _write(self, line: _Line) -> None:
        self._logger.log(line.level, line.text, *line.arguments, exc_info=line.failure)


LINES = Lines()
