"""The agent's log: a separate thread writes it, so that the agent's own threads never wait for a log handler.

A handler's lock, or that of ``logging`` itself, may be part of the very deadlock that the agent has to report.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from queue import SimpleQueue
from typing import Any, NamedTuple

RECORDS_MAX = 100
"""Maximum number of records that wait to be written; further ones are dropped."""
END_SECONDS_MAX = 0.25


class _Record(NamedTuple):
    level: int
    text: str
    arguments: tuple[object, ...]
    failure: Any


class LogQueue:
    """The agent's log in one process. While no agent runs, the calling thread writes each record itself."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("stilltrue")
        self._lock = threading.Lock()
        self._agents = 0
        self._process = 0
        self._records: SimpleQueue[_Record | None] = SimpleQueue()
        self._writer = threading.Thread()

    def begin(self) -> None:
        """An agent starts."""
        if self._process != os.getpid():  # after a fork: the writer, and any thread that held the lock, are the parent's
            self._lock = threading.Lock()
            self._agents, self._records, self._process = 0, SimpleQueue(), os.getpid()
        with self._lock:
            self._agents += 1
            if self._agents == 1:
                self._writer = threading.Thread(
                    target=self._write_all, args=(self._records,), name="stilltrue-log", daemon=True
                )
                self._writer.start()

    def end(self) -> None:
        """An agent ends. After the last one, wait briefly until all records are written."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._agents -= 1
            writer = None if self._agents else self._writer
            if writer is not None:
                self._records.put(None)
        if writer is not None:
            writer.join(END_SECONDS_MAX)

    def debug(self, text: str, *arguments: object) -> None:
        """Log a detail for debugging."""
        self._log(_Record(logging.DEBUG, text, arguments, None))

    def info(self, text: str, *arguments: object) -> None:
        """Log a normal event."""
        self._log(_Record(logging.INFO, text, arguments, None))

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning."""
        self._log(_Record(logging.WARNING, text, arguments, None))

    def exception(self, text: str, *arguments: object) -> None:
        """Log an error with the traceback of the exception being handled."""
        self._log(_Record(logging.ERROR, text, arguments, sys.exc_info()))

    def _log(self, record: _Record) -> None:
        if not self._agents or self._process != os.getpid():
            self._write(record)
        elif self._records.qsize() < RECORDS_MAX:
            self._records.put(record)

    def _write_all(self, records: SimpleQueue[_Record | None]) -> None:
        while (record := records.get()) is not None:
            self._write(record)

    def _write(self, record: _Record) -> None:
        self._logger.log(record.level, record.text, *record.arguments, exc_info=record.failure)


LOG = LogQueue()
