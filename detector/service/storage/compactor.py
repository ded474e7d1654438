"""Compacts the archive's older days once a day, on a separate thread beside the writer; fails open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from detector.ops.logs import Log

RETRY_SECONDS = 3600.0


class Compactor:
    """Starts compactions of days that are old enough. An interruption neither loses nor duplicates rows."""

    def __init__(self, *, location: str, seconds_min: float, log: Log, clock: Callable[[], float] = time.time) -> None:
        """``seconds_min``: how long ago a day must have ended; 0: never compact."""
        self._location = location
        self._seconds_min = seconds_min
        self._log = log
        self._clock = clock
        self._done = ""
        self._failed_at = 0.0
        self._thread: threading.Thread | None = None

    def begin_if_due(self) -> None:
        """Start a compaction if one is due, without waiting for it. The writer's thread calls this regularly."""
        if not self._seconds_min or (self._thread is not None and self._thread.is_alive()):
            return
        from detector.archive.compact import last_day  # noqa: PLC0415 - pyarrow is an extra

        until = last_day(self._clock(), self._seconds_min)
        if until != self._done and self._clock() - self._failed_at >= RETRY_SECONDS:
            self._thread = threading.Thread(target=self._compact, args=(until,), name="stilltrue-compact", daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for a compaction in progress."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _compact(self, until: str) -> None:
        from detector.archive.compact import compact  # noqa: PLC0415 - pyarrow is an extra
        from detector.archive.files import ArchiveError, ArchiveFiles  # noqa: PLC0415

        try:
            done = compact(ArchiveFiles(self._location), until=until)
        except (ArchiveError, OSError) as error:
            self._failed_at = self._clock()
            self._log.failure("archive not compacted", error, location=self._location, consequence="it stays as it was")
            return
        self._done = until
        if done.before:
            self._log.info("archive compacted", until=until, files_before=done.before, files_after=done.after)
