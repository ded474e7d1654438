"""A bounded log of what happened to each snapshot, to explain why a report was set aside."""

from __future__ import annotations

from collections import deque

from stilltrue.model import SnapshotId

EVENTS_MAX = 1_000


class SnapshotLog:
    """The newest events, each about the snapshots in a range of ids."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        """Beyond ``events_max`` the oldest events are dropped."""
        self._events: deque[tuple[float, SnapshotId, SnapshotId, str]] = deque(maxlen=events_max)

    def record(self, now: float, text: str, snapshot: SnapshotId, *, after: SnapshotId | None = None) -> None:
        """Record that ``text`` happened to ``snapshot``, or to every snapshot in (``after``, ``snapshot``]."""
        first = SnapshotId(snapshot - 1) if after is None else after
        self._events.append((now, first, snapshot, text))

    def story(self, snapshot: SnapshotId) -> list[str]:
        """The events of one snapshot, oldest first; times in seconds since the first."""
        events = [(now, text) for now, after, last, text in self._events if after < snapshot <= last]
        return [f"{now - events[0][0]:.3f} s: {text}" for now, text in events]
