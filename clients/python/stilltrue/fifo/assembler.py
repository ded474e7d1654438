"""Assembles local records into a global snapshot and checks it, at one collector or by flooding (section 3.3).

The check is the paper's own argument: on every channel, the messages sent before the source's cut are those received before
the target's cut and those recorded. It detects a channel that is not FIFO, or loses or duplicates messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic

from stilltrue.fifo.errors import ConservationError, RecordError
from stilltrue.fifo.model import Channel, ChannelSnapshot, LocalRecord, M, S
from stilltrue.fifo.topology import Topology
from stilltrue.model import ProcessName, SnapshotId


class PendingSnapshot(Generic[S, M]):
    """A snapshot whose local records are still coming in; :meth:`adds` returns the completed one with the last record."""

    def __init__(self, snapshot: SnapshotId, topology: Topology) -> None:
        self._snapshot = snapshot
        self._topology = topology
        self._records: dict[ProcessName, LocalRecord[S, M]] = {}

    @property
    def missing(self) -> tuple[ProcessName, ...]:
        """The processes whose record is missing, sorted."""
        return tuple(name for name in self._topology.processes if name not in self._records)

    def adds(self, record: LocalRecord[S, M]) -> ChannelSnapshot[S, M] | None:
        """Add one process's record. Returns the snapshot if it is the last record, else None.

        Raises RecordError for a record of another snapshot, of a process that is not a member, or that contradicts the one
        already held; ConservationError if the two ends of a channel contradict each other.
        """
        if record.snapshot != self._snapshot:
            raise RecordError(f"a record of snapshot {record.snapshot} was offered to snapshot {self._snapshot}")
        if record.process not in self._topology.processes:
            raise RecordError(f"{record.process} is not a member of snapshot {self._snapshot}")
        if self._records.setdefault(record.process, record) != record:
            raise RecordError(f"{record.process} sent two different records for snapshot {self._snapshot}")
        return None if self.missing else self._completed()

    def _completed(self) -> ChannelSnapshot[S, M]:
        sent = {one: count for record in self._records.values() for one, count in record.sent}
        incoming = {one.channel: one for record in self._records.values() for one in record.incoming}
        channels: dict[Channel, tuple[M, ...]] = {}
        for one in self._topology.channels:
            if one not in sent or one not in incoming:
                raise RecordError(f"snapshot {self._snapshot}: one end of {one} did not record it")
            messages = incoming[one].messages
            if sent[one] != incoming[one].received + len(messages):
                raise ConservationError(
                    f"snapshot {self._snapshot}: {sent[one]} messages were sent on {one}, "
                    f"{incoming[one].received} received and {len(messages)} in transit"
                )
            channels[one] = messages
        states = {name: self._records[name].state for name in self._topology.processes}
        return ChannelSnapshot(snapshot=self._snapshot, states=MappingProxyType(states), channels=MappingProxyType(channels))


@dataclass(frozen=True, kw_only=True)
class SendRecord(Generic[S, M]):
    """Pass a local record on along ``channel``. It is not a message of the application and is never recorded."""

    channel: Channel
    record: LocalRecord[S, M]


@dataclass(frozen=True, kw_only=True)
class Completed(Generic[S, M]):
    """This process now holds the complete snapshot."""

    snapshot: ChannelSnapshot[S, M]


FloodEffect = SendRecord[S, M] | Completed[S, M]


class Flood(Generic[S, M]):
    """Section 3.3: each process sends its record on all its channels, and passes on every record that is new to it.

    So every process gets every snapshot, without a collector. Each record comes exactly once on each incoming channel, which
    bounds the memory needed. Needs a strongly connected graph; raises ValueError otherwise.
    """

    def __init__(self, process: ProcessName, topology: Topology) -> None:
        if not topology.strongly_connected():
            raise ValueError("flooding needs a path from every process to every other")
        self._topology = topology
        self._outgoing = topology.outgoing(process)
        self._due = len(topology.processes) * len(topology.incoming(process))
        self._seen: dict[SnapshotId, set[ProcessName]] = {}
        self._arrived: dict[SnapshotId, int] = {}
        self._pending: dict[SnapshotId, PendingSnapshot[S, M]] = {}

    @property
    def pending(self) -> tuple[SnapshotId, ...]:
        """The snapshots for which records are still to come, sorted."""
        return tuple(sorted(self._seen))

    def finished(self, record: LocalRecord[S, M]) -> tuple[FloodEffect[S, M], ...]:
        """This process has finished its own record."""
        return self._add(record)

    def received(self, record: LocalRecord[S, M]) -> tuple[FloodEffect[S, M], ...]:
        """A record came along a channel."""
        self._arrived[record.snapshot] = self._arrived.get(record.snapshot, 0) + 1
        effects = self._add(record)
        self._forget_if_over(record.snapshot)
        return effects

    def forgets(self, snapshot: SnapshotId) -> None:
        """``snapshot`` was abandoned: drop its records."""
        for held in (self._seen, self._arrived, self._pending):
            held.pop(snapshot, None)

    def _add(self, record: LocalRecord[S, M]) -> tuple[FloodEffect[S, M], ...]:
        seen = self._seen.setdefault(record.snapshot, set())
        if record.process in seen:
            return ()
        seen.add(record.process)
        pending = self._pending.setdefault(record.snapshot, PendingSnapshot(record.snapshot, self._topology))
        passed_on = tuple(SendRecord(channel=one, record=record) for one in self._outgoing)
        whole = pending.adds(record)
        return passed_on if whole is None else (*passed_on, Completed(snapshot=whole))

    def _forget_if_over(self, snapshot: SnapshotId) -> None:
        if self._arrived.get(snapshot) == self._due and len(self._seen[snapshot]) == len(self._topology.processes):
            self.forgets(snapshot)
