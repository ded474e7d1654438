"""Decides when to request a snapshot: once a party has been blocked for long, and ever more rarely while it stays blocked."""

from __future__ import annotations

from typing import NamedTuple

from stilltrue.model import WaitNumber
from stilltrue.runtime.locked_recorder import LockedRecorder

AGAIN_SECONDS_MIN = 0.25
AGAIN_SECONDS_MAX = 1.0
STILL_BLOCKED = "still blocked"
"""Prefix of the reason of a repeated request."""


class SnapshotRequest(NamedTuple):
    """A request for a snapshot. One that began within the last ``covered_seconds`` serves as well."""

    reason: str
    covered_seconds: float


class SnapshotRequests:
    """The snapshot requests of one process."""

    def __init__(self, block_seconds_max: float) -> None:
        """``block_seconds_max``: from this length on, a wait is long."""
        self._block_seconds_max = block_seconds_max
        self._requested = WaitNumber(0)
        self._again_at = 0.0
        self._again_seconds = AGAIN_SECONDS_MIN

    def poll(self, live: LockedRecorder, now: float) -> SnapshotRequest | None:
        """The request to make now, or None. ``now`` is monotonic.

        Any snapshot that began after the wait shows it. A repeated request needs one that began after the last request.
        """
        new = self._long(live, self._requested)
        if new is not None:
            self._requested, seconds = new
            self._again_seconds = AGAIN_SECONDS_MIN
            self._again_at = now + AGAIN_SECONDS_MIN
            return SnapshotRequest(f"blocked for {seconds:.3f} s", seconds)
        if not self._requested or now < self._again_at:
            return None
        old = self._long(live, WaitNumber(0))
        if old is None:
            self._again_at = now + AGAIN_SECONDS_MIN
            return None
        since = self._again_seconds
        self._again_seconds = min(2 * self._again_seconds, AGAIN_SECONDS_MAX)
        self._again_at = now + self._again_seconds
        return SnapshotRequest(f"{STILL_BLOCKED}, for {old[1]:.3f} s", min(since, old[1]))

    def _long(self, live: LockedRecorder, after: WaitNumber) -> tuple[WaitNumber, float] | None:
        oldest = live.oldest_wait(after)
        if oldest is None:
            return None
        seconds = live.clock() - oldest[1]
        return (oldest[0], seconds) if seconds >= self._block_seconds_max else None
