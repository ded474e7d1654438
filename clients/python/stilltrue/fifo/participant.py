"""One live process's part in snapshots of FIFO channels: recorder, flooding and numbering, driven by received frames. Pure.

1. *Numbers.* Of n processes, the one with rank r (by name) numbers its snapshots r + 1, r + 1 + n ...: it takes the smallest
   such number above all it has seen. So any process may begin without asking another.
2. *Collection.* Records are flooded (section 3.3 of the paper), so that every process gets every snapshot.
3. *Abandoning.* A snapshot that one process cannot finish is abandoned by all: that, too, is flooded, once.
4. *Loss.* After a process is lost, the snapshots in progress are abandoned and no new one can begin. To continue, restore all
   processes from the last completed snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stilltrue.fifo.assembler import Completed, Flood, FloodEffect, SendRecord
from stilltrue.fifo.errors import ChannelError, ConservationError, MarkerError, RecordError
from stilltrue.fifo.model import Abandoned, Channel, ChannelSnapshot, Cut, Effect, Finished, Hold, Release, SendMarker
from stilltrue.fifo.recorder import MarkerRecorder
from stilltrue.fifo.topology import Topology
from stilltrue.fifo.wire import Frame, GivenUp, Goodbye, Hello, LiveRecord, MarkerFrame, Payload, RecordFrame
from stilltrue.model import ProcessName, SnapshotId

LiveSnapshot = ChannelSnapshot[bytes, bytes]
FloodEffects = tuple[FloodEffect[bytes, bytes], ...]
_REMEMBERED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFrame:
    """Send ``frame`` to ``target``, after all frames requested before."""

    target: ProcessName
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Pass ``payload`` to the application, in this same step."""

    channel: Channel
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDone:
    """This process holds a complete snapshot."""

    snapshot: LiveSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFailed:
    """A snapshot will not be completed."""

    snapshot: SnapshotId
    reason: str


Action = SendFrame | Deliver | SnapshotDone | SnapshotFailed
"""What the host must do, in this order, in the same step."""


class Participant:
    """Applies the rules above for ``process``; ``state`` is called in the step in which the process cuts."""

    def __init__(
        self,
        process: ProcessName,
        topology: Topology,
        *,
        state: Callable[[], bytes],
        newest: SnapshotId = SnapshotId(0),
        messages_max: int = 1_000_000,
        snapshots_max: int = 16,
    ) -> None:
        self.process = process
        self.topology = topology
        self._state = state
        incoming, outgoing = topology.incoming(process), topology.outgoing(process)
        self._recorder: MarkerRecorder[bytes, bytes] = MarkerRecorder(
            process, incoming=incoming, outgoing=outgoing, messages_max=messages_max
        )
        self._flood: Flood[bytes, bytes] = Flood(process, topology)
        self._snapshots_max = snapshots_max
        self._newest = newest
        self._sent = dict.fromkeys(outgoing, 0)
        self._received = dict.fromkeys(incoming, 0)
        self._abandoned: deque[SnapshotId] = deque(maxlen=_REMEMBERED_MAX)
        self._lost: list[ProcessName] = []

    @property
    def lost(self) -> tuple[ProcessName, ...]:
        """The processes whose channels were lost, oldest loss first."""
        return tuple(self._lost)

    def sends(self, on: Channel, payload: bytes) -> SendFrame:
        """The application sends ``payload``. Raises ChannelError if there is no such channel, or it is lost."""
        if on.target in self._lost:
            raise ChannelError(f"{on} is lost")
        self._recorder.sent(on)
        self._sent[on] += 1
        return SendFrame(target=on.target, frame=Payload(name=on.name, number=self._sent[on], payload=payload))

    def begins(self) -> tuple[SnapshotId, tuple[Action, ...]]:
        """The application requests a snapshot (rule 1). Raises ChannelError if none can be taken now."""
        if self._lost:
            raise ChannelError(f"{self._lost[0]} is lost: no snapshot can be taken until all are restored")
        if len(self._recorder.under_way) >= self._snapshots_max:
            raise ChannelError(f"{self._snapshots_max} snapshots are already in progress")
        count, rank = len(self.topology.processes), self.topology.processes.index(self.process)
        after = self._newest + 1
        snapshot = SnapshotId(after + (rank + 1 - after) % count)
        self._newest = snapshot
        return snapshot, self._actions(self._recorder.begins(snapshot, self._state))

    def receives(self, source: ProcessName, frame: Frame) -> tuple[Action, ...]:
        """A frame came from ``source``. Raises ChannelError if a process that keeps the rules cannot have sent it."""
        match frame:
            case Payload():
                return self._message(self._incoming(source, frame.name), frame)
            case MarkerFrame(name=name, snapshot=snapshot):
                self._newest = max(self._newest, snapshot)
                return self._actions(self._recorder.marked(self._incoming(source, name), snapshot, self._state))
            case RecordFrame(record=record):
                return self._add(record, self._flood.received)
            case GivenUp(snapshot=snapshot, reason=reason):
                return self.gives_up(snapshot, reason)
            case Hello() | Goodbye():
                raise ChannelError(f"{source} sent a hello or goodbye out of place")

    def gives_up(self, snapshot: SnapshotId, reason: str) -> tuple[Action, ...]:
        """Abandon ``snapshot`` and notify all other processes (rule 3)."""
        if snapshot in self._abandoned:
            return ()
        self._abandoned.append(snapshot)
        self._recorder.gives_up(snapshot)
        self._flood.forgets(snapshot)
        notices = tuple(
            SendFrame(target=target, frame=GivenUp(snapshot=snapshot, reason=reason))
            for target in sorted({one.target for one in self._sent} - set(self._lost))
        )
        return (*notices, SnapshotFailed(snapshot=snapshot, reason=reason))

    def loses(self, process: ProcessName) -> tuple[Action, ...]:
        """The channels from and to ``process`` are lost (rule 4)."""
        if process in self._lost:
            return ()
        self._lost.append(process)
        under_way = sorted({*self._recorder.under_way, *self._flood.pending} - set(self._abandoned))
        for one in (*self._received, *self._sent):
            if process in (one.source, one.target):
                self._recorder.lost(one)
        return tuple(action for snapshot in under_way for action in self.gives_up(snapshot, f"{process} was lost"))

    def _message(self, on: Channel, frame: Payload) -> tuple[Action, ...]:
        expected = self._received[on] + 1
        if frame.number != expected:
            raise ChannelError(f"{on} is not FIFO: message {frame.number} arrived where {expected} was due")
        self._received[on] = expected
        actions = self._actions(self._recorder.received(on, frame.payload))
        return (*actions, Deliver(channel=on, payload=frame.payload))

    def _actions(self, effects: tuple[Effect[bytes, bytes], ...]) -> tuple[Action, ...]:
        actions: tuple[Action, ...] = ()
        for effect in effects:
            match effect:
                case SendMarker(channel=on, snapshot=snapshot):
                    actions += (SendFrame(target=on.target, frame=MarkerFrame(name=on.name, snapshot=snapshot)),)
                case Finished(record=record):
                    actions += self._add(record, self._flood.finished)
                case Abandoned(snapshot=snapshot, reason=reason):
                    actions += self.gives_up(snapshot, f"{self.process}: {reason.value}")
                case Cut() | Hold() | Release():
                    pass  # the state travels in the record; markers hold nothing
        return actions

    def _add(self, record: LiveRecord, to_flood: Callable[[LiveRecord], FloodEffects]) -> tuple[Action, ...]:
        """Add a record. If it contradicts others, the snapshot is abandoned: it is unknown which process is wrong."""
        if record.snapshot in self._abandoned:
            return ()
        try:
            effects = to_flood(record)
        except (RecordError, ConservationError) as error:
            return self.gives_up(record.snapshot, str(error))
        actions: tuple[Action, ...] = ()
        for effect in effects:
            match effect:
                case SendRecord(channel=on, record=record):
                    actions += (SendFrame(target=on.target, frame=RecordFrame(record=record)),)
                case Completed(snapshot=snapshot):
                    actions += (SnapshotDone(snapshot=snapshot),)
        return actions

    def _incoming(self, source: ProcessName, name: str) -> Channel:
        on = Channel(source=source, target=self.process, name=name)
        if on not in self._received:
            raise MarkerError(f"{self.process} has no incoming channel {on}")
        return on
