"""The types of snapshots of FIFO channels: channel, local record, snapshot, and the effects that a recorder returns.

``S`` is the type of a process's state, ``M`` that of a message: bytes in live processes, facts in the simulator. The generic
types have no slots: Python 3.11 cannot instantiate ``Type[S](...)`` if the class is frozen, slotted and generic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from stilltrue.model import ProcessName, SnapshotId

S = TypeVar("S")
M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Channel:
    """The one-way FIFO path from ``source`` to ``target``; ``name`` tells parallel channels apart."""

    source: ProcessName
    target: ProcessName
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}" + (f" #{self.name}" if self.name else "")


def channel(source: str, target: str, name: str = "") -> Channel:
    """The channel from ``source`` to ``target``, from plain strings."""
    return Channel(source=ProcessName(source), target=ProcessName(target), name=name)


@dataclass(frozen=True, kw_only=True)
class ChannelRecord(Generic[M]):
    """The target's record of one incoming channel.

    ``received`` is the number of messages received before the target's cut; ``messages`` are those received after it and
    before the marker, in order: the channel's state.
    """

    channel: Channel
    received: int
    messages: tuple[M, ...]


@dataclass(frozen=True, kw_only=True)
class LocalRecord(Generic[S, M]):
    """One process's record for one snapshot: its state, its incoming channels, its outgoing counts.

    ``incoming`` and ``sent`` are sorted by channel; ``sent`` has the number of messages sent on each channel before the cut.
    """

    snapshot: SnapshotId
    process: ProcessName
    state: S
    incoming: tuple[ChannelRecord[M], ...]
    sent: tuple[tuple[Channel, int], ...]


@dataclass(frozen=True, kw_only=True)
class ChannelSnapshot(Generic[S, M]):
    """A complete global state: every process's state, and every channel's messages in order (empty channels included)."""

    snapshot: SnapshotId
    states: Mapping[ProcessName, S]
    channels: Mapping[Channel, tuple[M, ...]]


class AbandonReason(Enum):
    """Why a process stopped recording for a snapshot before it was finished."""

    CHANNEL_LOST = "an incoming channel was lost before its marker arrived"
    GIVEN_UP = "the host abandoned it"
    TOO_MANY_MESSAGES = "more messages had to be stored than the bound allows"
    OVERTAKEN = "a newer barrier arrived while this one was still being aligned"


@dataclass(frozen=True, kw_only=True)
class Cut(Generic[S]):
    """The process has just recorded its state for ``snapshot``."""

    snapshot: SnapshotId
    state: S


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarker:
    """Send a marker for ``snapshot`` on ``channel`` before any further message on it."""

    channel: Channel
    snapshot: SnapshotId


@dataclass(frozen=True, kw_only=True)
class Finished(Generic[S, M]):
    """The process has finished its record for a snapshot."""

    record: LocalRecord[S, M]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The process will not finish ``snapshot`` and has dropped the messages kept for it."""

    snapshot: SnapshotId
    reason: AbandonReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Receive nothing more from ``channel`` until it is released (barrier alignment only)."""

    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Receive from these channels again."""

    channels: tuple[Channel, ...]


Effect = Cut[S] | SendMarker | Finished[S, M] | Abandoned | Hold | Release


class ChannelRecorder(Protocol[S, M]):
    """The recorder of one process, as its host calls it; markers and barriers differ only in the effects returned."""

    def begins(self, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """The process begins ``snapshot`` by itself."""
        ...

    def sent(self, on: Channel) -> None:
        """The process sends a message."""
        ...

    def received(self, on: Channel, message: M) -> tuple[Effect[S, M], ...]:
        """The process receives a message."""
        ...

    def marked(self, on: Channel, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """The process receives a marker (a barrier)."""
        ...

    def ended(self, on: Channel) -> tuple[Effect[S, M], ...]:
        """An incoming channel has ended cleanly."""
        ...

    def gives_up(self, snapshot: SnapshotId) -> tuple[Effect[S, M], ...]:
        """The host abandons a snapshot."""
        ...
