"""A bounded log of what happened to each snapshot, so that a report that is set aside can be explained."""

from __future__ import annotations

from collections import deque

from stilltrue.model import SnapshotId

HAPPENINGS_MAX = 1_000


class SnapshotLog:
    """The newest events, each about the snapshots above one id and up to another."""

    def __init__(self, happenings_max: int = HAPPENINGS_MAX) -> None:
        """``happenings_max``: beyond it the oldest are forgotten."""
        self._happenings: deque[tuple[float, SnapshotId, SnapshotId, str]] = deque(maxlen=happenings_max)

    def record(self, now: float, text: str, snapshot: SnapshotId, *, after: SnapshotId | None = None) -> None:
        """``text`` happened to ``snapshot``, or to all of them above ``after`` and up to it."""
        first = SnapshotId(snapshot - 1) if after is None else after
        self._happenings.append((now, first, snapshot, text))

    def story(self, snapshot: SnapshotId) -> list[str]:
        """The events of one snapshot, oldest first; times in seconds since the first."""
        events = [(now, text) for now, after, last, text in self._happenings if after < snapshot <= last]
        return [f"{now - events[0][0]:.3f} s: {text}" for now, text in events]
