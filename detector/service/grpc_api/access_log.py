"""The access log: which clients sent which requests over gRPC and HTTP, and which were refused.

JSON lines in a rotated file in the data directory; off by default. It never contains tokens, cookies or query strings.

The audit log of cures (:mod:`detector.service.cure.audit`) is separate: it is always written, and requests cannot crowd it out.
Writing never blocks the service: a thread does it, and beyond :data:`WAITING_MAX` queued entries are dropped and counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Full, Queue
from typing import Any

from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.cure.audit import Audit
from detector.service.grpc_api.roles import Role

NAME = "access.jsonl"
WAITING_MAX = 1000
TEXT_CHARACTERS_MAX = 200
WHO_CHARACTERS_MAX = 1000
DETAILS = ("predicate", "scope", "incident", "preview", "process", "id", "table")
"""The fields of a request that are logged."""
CLOSE_SECONDS_MAX = 2.0


class AccessLog:
    """Logs each call of the detector's service and each HTTP request."""

    def __init__(self, directory: Path, clock: Clock, log: Log) -> None:
        """``directory``: the detector's data directory."""
        self._file = Audit(directory, NAME)
        self._clock = clock
        self._log = log
        self._waiting: Queue[tuple[str, str, dict[str, Any]] | None] = Queue(WAITING_MAX)
        self._dropped = 0
        self._failed = False
        self._thread = threading.Thread(target=self._write, name="stilltrue-access-log", daemon=True)
        self._thread.start()

    def note(self, what: str, who: str, roles: Iterable[Role], outcome: str, request: Any = None, **more: str | int) -> None:
        """Log that ``who`` called the method ``what`` or made an HTTP request. Never blocks, never raises."""
        details = {name: value for name in DETAILS if (value := getattr(request, name, None))} | more
        values = {name: value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value for name, value in details.items()}
        entry = {"roles": sorted(role.value for role in roles), "outcome": outcome, **values}
        try:
            self._waiting.put_nowait((what, who[:WHO_CHARACTERS_MAX], entry))
        except Full:
            self._dropped += 1

    def close(self) -> None:
        """Write the queue out."""
        try:
            self._waiting.put(None, timeout=CLOSE_SECONDS_MAX)
        except Full:
            return
        self._thread.join(CLOSE_SECONDS_MAX)

    def _write(self) -> None:
        while (entry := self._waiting.get()) is not None:
            what, who, values = entry
            if self._dropped:
                values, self._dropped = {**values, "dropped_before": self._dropped}, 0
            try:
                self._file.write(self._clock.now(), what, who, **values)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    self._log.failure("access log not written", error)
                self._failed = True
