"""The application's callbacks on a call: the process counts as active from the call's end until they have run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stilltrue.runtime.locked_recorder import LockedRecorder


class Callbacks:
    """Counts the pending callbacks of one call as work. gRPC runs them on a separate thread after the call is settled."""

    __slots__ = ("_due", "_live", "_lock", "_waiting")

    def __init__(self, live: LockedRecorder) -> None:
        """``live`` counts the work."""
        self._live = live
        self._lock = threading.Lock()
        self._waiting: set[object] = set()
        self._due: set[object] = set()

    def as_work(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``callback`` so that it counts as work from the call's end (or its own start, if earlier) until it has run."""
        token = object()
        self._waiting.add(token)

        def run(*arguments: Any) -> Any:
            self._begin(token)
            try:
                return callback(*arguments)
            finally:
                self._end(token)

        return run

    def call_ends(self) -> None:
        """The call is about to be settled, so the waiting callbacks will run."""
        for token in list(self._waiting):
            self._begin(token)

    def _begin(self, token: object) -> None:
        with self._lock:
            first = token in self._waiting
            if first:
                self._waiting.discard(token)
                self._due.add(token)
        if first:
            self._record(self._live.busy)

    def _end(self, token: object) -> None:
        with self._lock:
            due = token in self._due
            self._due.discard(token)
        if due:
            self._record(self._live.done)

    def _record(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("running a callback")
