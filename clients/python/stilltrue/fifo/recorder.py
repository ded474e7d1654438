"""One process's part in Chandy and Lamport's algorithm: markers in FIFO channels, with the channels' messages recorded.

The rules (Chandy and Lamport 1985, "Distributed Snapshots", section 3; the code names them by number):

1. *Sending.* A process that cuts sends one marker on every outgoing channel after its cut and before any further
   message on it.
2. *Receiving, first.* A process that receives the marker of a snapshot for which it has not cut cuts at once; the
   state of the marker's channel is empty.
3. *Receiving, later.* Otherwise the state of the marker's channel is the messages received on it after the cut and
   before the marker.
4. *Beginning.* Any process may begin, several may begin the same snapshot, and several snapshots may be in progress: each
   follows rules 1 to 3 as if it were alone.
5. *Ending* (section 3.3). A process has finished when a marker has come on every incoming channel. Every channel
   carries exactly one marker per snapshot, so a finished snapshot is forgotten: memory is bounded by those in progress.
6. *Abandoning.* A snapshot that a process cannot finish is abandoned; the process reports that, and ignores later markers
   of the snapshot, which must not begin it again.

Pure: no clock, no thread, no randomness, no input or output. Each method is one event; it returns what the host must do, in
this order, in the same atomic step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic

from stilltrue.fifo.errors import MarkerError
from stilltrue.fifo.model import (
    Abandoned,
    AbandonReason,
    Channel,
    ChannelRecord,
    Cut,
    Effect,
    Finished,
    LocalRecord,
    M,
    S,
    SendMarker,
)
from stilltrue.model import ProcessName, SnapshotId

_MESSAGES_MAX = 1_000_000


@dataclass(slots=True)
class _Recording(Generic[S, M]):
    """A snapshot for which this process has cut: its record so far, and the channels whose marker has not come."""

    state: S
    sent: tuple[tuple[Channel, int], ...]
    received: dict[Channel, int]
    open: dict[Channel, list[M]]
    kept: int = 0
    abandoned: bool = False
    closed: dict[Channel, tuple[M, ...]] = field(default_factory=dict)


class MarkerRecorder(Generic[S, M]):
    """Records one process's state and incoming channels for every snapshot in progress.

    ``messages_max`` bounds the messages kept for one snapshot; beyond it the snapshot is abandoned, never the application.
    ``state`` arguments are called only in the step in which the process cuts, and only once. Methods raise
    :class:`MarkerError` for an unknown channel or an impossible marker.
    """

    def __init__(
        self,
        process: ProcessName,
        *,
        incoming: Iterable[Channel],
        outgoing: Iterable[Channel],
        messages_max: int = _MESSAGES_MAX,
    ) -> None:
        self._process = process
        self._received = dict.fromkeys(sorted(incoming), 0)
        self._sent = dict.fromkeys(sorted(outgoing), 0)
        self._messages_max = messages_max
        self._under_way: dict[SnapshotId, _Recording[S, M]] = {}
        for one in self._received:
            _expect_end(one, one.target, process, "incoming")
        for one in self._sent:
            _expect_end(one, one.source, process, "outgoing")

    @property
    def under_way(self) -> tuple[SnapshotId, ...]:
        """The snapshots for which this process still waits for markers, sorted."""
        return tuple(sorted(self._under_way))

    def begins(self, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """This process begins ``snapshot`` by itself (rule 4); does nothing if it has already cut for it."""
        if snapshot in self._under_way:
            return ()
        return self._cut(snapshot, state)

    def sent(self, on: Channel) -> None:
        """This process sends a message on ``on``; call it in the step that changes its state."""
        if on not in self._sent:
            raise MarkerError(f"{self._process} has no outgoing channel {on}")
        self._sent[on] += 1

    def received(self, on: Channel, message: M) -> tuple[Effect[S, M], ...]:
        """This process receives ``message``; it is recorded for each snapshot for which it was in transit (rule 3)."""
        self._expect_incoming(on)
        effects: tuple[Effect[S, M], ...] = ()
        for snapshot, recording in self._under_way.items():
            if on not in recording.open or recording.abandoned:
                continue
            if recording.kept == self._messages_max:
                effects += self._abandon(snapshot, recording, AbandonReason.TOO_MANY_MESSAGES)
                continue
            recording.open[on].append(message)
            recording.kept += 1
        self._received[on] += 1
        return effects

    def marked(self, on: Channel, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """This process receives a marker for ``snapshot`` (rules 2 and 3)."""
        self._expect_incoming(on)
        effects: tuple[Effect[S, M], ...] = ()
        if snapshot not in self._under_way:
            effects = self._cut(snapshot, state, except_finish=True)
        recording = self._under_way[snapshot]
        if on not in recording.open:
            raise MarkerError(f"{self._process} received a second marker of snapshot {snapshot} on {on}")
        return effects + self._close(snapshot, recording, on)

    def ended(self, on: Channel) -> tuple[Effect[S, M], ...]:
        """``on`` has ended cleanly: nothing more will come on it, so its marker is no longer needed."""
        self._expect_incoming(on)
        del self._received[on]
        effects: tuple[Effect[S, M], ...] = ()
        for snapshot, recording in list(self._under_way.items()):
            if on in recording.open:
                effects += self._close(snapshot, recording, on)
        return effects

    def lost(self, on: Channel) -> tuple[Effect[S, M], ...]:
        """``on`` broke: snapshots that still wait for its marker cannot be finished (rule 6)."""
        self._sent.pop(on, None)
        effects: tuple[Effect[S, M], ...] = ()
        if self._received.pop(on, None) is None:
            return effects
        for snapshot, recording in list(self._under_way.items()):
            if on in recording.open:
                effects += self._abandon(snapshot, recording, AbandonReason.CHANNEL_LOST)
                self._close(snapshot, recording, on)
        return effects

    def gives_up(self, snapshot: SnapshotId) -> tuple[Effect[S, M], ...]:
        """The host abandons ``snapshot`` (after a timeout, for example); does nothing if it is not in progress (rule 6)."""
        recording = self._under_way.get(snapshot)
        return () if recording is None else self._abandon(snapshot, recording, AbandonReason.GIVEN_UP)

    def _cut(self, snapshot: SnapshotId, state: Callable[[], S], *, except_finish: bool = False) -> tuple[Effect[S, M], ...]:
        recording: _Recording[S, M] = _Recording(
            state=state(),
            sent=tuple(self._sent.items()),
            received=dict(self._received),
            open={one: [] for one in self._received},
        )
        self._under_way[snapshot] = recording
        markers = tuple(SendMarker(channel=one, snapshot=snapshot) for one in self._sent)  # rule 1
        effects: tuple[Effect[S, M], ...] = (Cut(snapshot=snapshot, state=recording.state), *markers)
        return effects if except_finish else effects + self._finish(snapshot, recording)

    def _close(self, snapshot: SnapshotId, recording: _Recording[S, M], on: Channel) -> tuple[Effect[S, M], ...]:
        recording.closed[on] = tuple(recording.open.pop(on))
        return self._finish(snapshot, recording)

    def _finish(self, snapshot: SnapshotId, recording: _Recording[S, M]) -> tuple[Effect[S, M], ...]:
        if recording.open:
            return ()
        del self._under_way[snapshot]  # rule 5
        return () if recording.abandoned else (Finished(record=self._record(snapshot, recording)),)

    def _abandon(self, snapshot: SnapshotId, recording: _Recording[S, M], reason: AbandonReason) -> tuple[Effect[S, M], ...]:
        if recording.abandoned:
            return ()
        recording.abandoned = True
        recording.closed.clear()
        for kept in recording.open.values():
            kept.clear()
        return (Abandoned(snapshot=snapshot, reason=reason),)

    def _record(self, snapshot: SnapshotId, recording: _Recording[S, M]) -> LocalRecord[S, M]:
        return LocalRecord(
            snapshot=snapshot,
            process=self._process,
            state=recording.state,
            sent=recording.sent,
            incoming=tuple(
                ChannelRecord(channel=one, received=recording.received[one], messages=messages)
                for one, messages in sorted(recording.closed.items())
            ),
        )

    def _expect_incoming(self, on: Channel) -> None:
        if on not in self._received:
            raise MarkerError(f"{self._process} has no incoming channel {on}")


def _expect_end(one: Channel, end: ProcessName, process: ProcessName, kind: str) -> None:
    if end != process:
        raise ValueError(f"{one} is not an {kind} channel of {process}")
