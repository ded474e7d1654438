"""A manually stepped system of processes connected by FIFO channels, each with a real recorder (markers or barriers).

Nothing happens by itself: a message or marker moves only when :meth:`FifoSystem.deliver` is called. Facts move with messages:
they are subtracted from the source's facts on sending and added to the target's on receipt, in one step each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from detector.simulator.diagram import Event, Kind
from stilltrue.fifo import (
    Abandoned,
    Channel,
    ChannelRecorder,
    ChannelSnapshot,
    Cut,
    Effect,
    Finished,
    Hold,
    MarkerRecorder,
    PendingSnapshot,
    Release,
    SendMarker,
    Topology,
)
from stilltrue.model import NO_FACTS, Fact, Facts, Message, ProcessName, SnapshotId

GlobalState = ChannelSnapshot[Facts, Message]
Recorder = ChannelRecorder[Facts, Message]
RecorderOf = Callable[[ProcessName, Topology], Recorder]


class StepError(ValueError):
    """A step that the system does not allow: an empty or held channel, an unknown process, too small a fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A marker (or barrier) in a channel."""

    snapshot: SnapshotId


class StepKind(Enum):
    """The three kinds of events of the paper's computation."""

    INTERNAL = "internal"
    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event of the computation (markers do not count), and the snapshots that its process had cut for by then."""

    process: ProcessName
    kind: StepKind
    channel: Channel | None = None
    message: Message | None = None
    change: Facts = field(default_factory=dict)
    cut_for: frozenset[SnapshotId] = frozenset()

    def __str__(self) -> str:
        if self.message is None or self.channel is None:
            text = f"set {self.process}"
        else:
            verb = "send" if self.kind is StepKind.SEND else "deliver"
            text = f"{verb} {self.channel} {in_words(self.message)}".rstrip()
        return text + (f" then {facts_in_words(self.change)}" if self.change else "")


def markers(process: ProcessName, topology: Topology) -> Recorder:
    """A recorder that uses markers, as published by Chandy and Lamport."""
    return MarkerRecorder(process, incoming=topology.incoming(process), outgoing=topology.outgoing(process))


class FifoSystem:
    """The system: processes' facts, channels' queues, pending and completed snapshots, and the log of events."""

    def __init__(
        self,
        topology: Topology,
        facts: Mapping[ProcessName, Facts],
        *,
        recorder: RecorderOf = markers,
        in_channels: Mapping[Channel, Iterable[Message]] = MappingProxyType({}),
    ) -> None:
        self.topology = topology
        self.recorder_of = recorder
        self.facts: dict[ProcessName, Facts] = {name: dict(facts.get(name, NO_FACTS)) for name in topology.processes}
        self.queues: dict[Channel, deque[Message | Marker]] = {one: deque() for one in topology.channels}
        self.held: set[Channel] = set()
        self.pending: dict[SnapshotId, PendingSnapshot[Facts, Message]] = {}
        self.snapshots: dict[SnapshotId, GlobalState] = {}
        self.abandoned: list[tuple[ProcessName, Abandoned]] = []
        self.steps: list[Step] = []
        self.events: list[Event] = []
        self._recorders = {name: recorder(name, topology) for name in topology.processes}
        self._cut_for: dict[ProcessName, set[SnapshotId]] = {name: set() for name in topology.processes}
        self._numbers: dict[Channel, deque[int]] = {one: deque() for one in topology.channels}
        self._next_number = 1
        for one, messages in in_channels.items():
            for message in messages:
                self._recorders[one.source].sent(one)
                self._enqueue(one, message)
        self.initial = self.now()

    def restored(self, snapshot: SnapshotId) -> FifoSystem:
        """A new system that continues from a completed snapshot of this one."""
        state = self.snapshots.get(snapshot)
        if state is None:
            raise StepError(f"snapshot {snapshot} is not completed")
        return FifoSystem(self.topology, state.states, recorder=self.recorder_of, in_channels=state.channels)

    def now(self) -> GlobalState:
        """The true global state at this instant, which no process can see, without markers."""
        channels = {one: tuple(item for item in queue if isinstance(item, Message)) for one, queue in self.queues.items()}
        return ChannelSnapshot(snapshot=SnapshotId(0), states=dict(self.facts), channels=channels)

    def change(self, process: ProcessName, change: Facts, *, label: str = "") -> None:
        """An internal event: some facts of ``process`` change."""
        self._expect_process(process)
        self.facts[process] = {**self.facts[process], **change}
        self._step(Step(process=process, kind=StepKind.INTERNAL, change=change))
        text = label or facts_in_words(change)
        self.events.append(Event(process=process, kind=Kind.INTERNAL, label=text))

    def send(self, on: Channel, *, what: str = "", moving: Facts = NO_FACTS, then: Facts = NO_FACTS) -> None:
        """``on.source`` sends a message: ``moving`` is subtracted from its facts, then ``then`` is set."""
        self._expect_channel(on)
        message = Message(source=on.source, target=on.target, facts=dict(moving), what=what)
        self.facts[on.source] = {**moved(self.facts[on.source], moving, -1, on.source), **then}
        self._recorders[on.source].sent(on)
        self._step(Step(process=on.source, kind=StepKind.SEND, channel=on, message=message, change=then))
        self._enqueue(on, message)

    def head(self, on: Channel) -> Message | Marker | None:
        """The next item of the channel ``on``; None if it is empty."""
        self._expect_channel(on)
        return self.queues[on][0] if self.queues[on] else None

    def deliver(self, on: Channel, *, then: Facts = NO_FACTS) -> Message | Marker:
        """``on.target`` receives the head of ``on``; ``then`` is set in its facts in the same step."""
        head = self.head(on)
        if head is None:
            raise StepError(f"{on} is empty")
        if on in self.held:
            raise StepError(f"{on} is held until the other barriers have come")
        self.queues[on].popleft()
        number = self._numbers[on].popleft()
        recorder, target = self._recorders[on.target], on.target
        if isinstance(head, Marker):
            self._received(target, number, marker=head.snapshot)
            self._obey(target, recorder.marked(on, head.snapshot, lambda: self.facts[target]))
            return head
        self._received(target, number)
        self._obey(target, recorder.received(on, head))
        self.facts[target] = {**moved(self.facts[target], head.facts, 1, target), **then}
        self._step(Step(process=target, kind=StepKind.RECEIVE, channel=on, message=head, change=then))
        return head

    def begin(self, process: ProcessName, snapshot: SnapshotId) -> None:
        """``process`` begins ``snapshot``; several may begin the same one."""
        self._expect_process(process)
        if snapshot not in self.snapshots:
            self._obey(process, self._recorders[process].begins(snapshot, lambda: self.facts[process]))

    def drain(self) -> int:
        """Deliver one item per channel in sorted order until nothing is left; returns the number of items."""
        delivered = 0
        while ready := [one for one in self.topology.channels if self.queues[one] and one not in self.held]:
            for on in ready:
                if self.queues[on] and on not in self.held:
                    self.deliver(on)
                    delivered += 1
        return delivered

    def _obey(self, process: ProcessName, effects: tuple[Effect[Facts, Message], ...]) -> None:
        for effect in effects:
            match effect:
                case Cut(snapshot=snapshot):
                    self._cut_for[process].add(snapshot)
                    self.pending.setdefault(snapshot, PendingSnapshot(snapshot, self.topology))
                    self.events.append(Event(process=process, kind=Kind.CUT, snapshot=snapshot))
                case SendMarker(channel=on, snapshot=snapshot):
                    self._enqueue(on, Marker(snapshot=snapshot))
                case Finished(record=record):
                    whole = self.pending[record.snapshot].adds(record)
                    if whole is not None:
                        self.snapshots[record.snapshot] = whole
                case Abandoned():
                    self.abandoned.append((process, effect))
                case Hold(channel=on):
                    self.held.add(on)
                case Release(channels=channels):
                    self.held.difference_update(channels)

    def _enqueue(self, on: Channel, item: Message | Marker) -> None:
        marker = isinstance(item, Marker)
        self.queues[on].append(item)
        self._numbers[on].append(self._next_number)
        self.events.append(
            Event(
                process=on.source,
                kind=Kind.SEND,
                label="" if isinstance(item, Marker) else in_words(item),
                message=self._next_number,
                marker=marker,
                target=on.target,
            )
        )
        self._next_number += 1

    def _received(self, process: ProcessName, number: int, marker: SnapshotId | None = None) -> None:
        self.events.append(
            Event(process=process, kind=Kind.RECEIVE, message=number, marker=marker is not None, snapshot=marker)
        )

    def _step(self, step: Step) -> None:
        self.steps.append(
            Step(
                process=step.process,
                kind=step.kind,
                channel=step.channel,
                message=step.message,
                change=step.change,
                cut_for=frozenset(self._cut_for[step.process]),
            )
        )

    def _expect_process(self, process: ProcessName) -> None:
        if process not in self.facts:
            raise StepError(f"there is no process {process}")

    def _expect_channel(self, on: Channel) -> None:
        if on not in self.queues:
            raise StepError(f"there is no channel {on}")


def moved(facts: Facts, moving: Facts, sign: int, process: ProcessName) -> dict[str, Fact]:
    """``facts`` with ``moving`` added (``sign`` 1) or subtracted (-1); StepError if there is too little."""
    changed = dict(facts)
    for key, amount in moving.items():
        here = changed.get(key, 0)
        if isinstance(here, str) or isinstance(amount, str):
            raise StepError(f"{key} is text and cannot move")
        left = here + sign * amount
        if left < 0:
            raise StepError(f"{process} has {key}={here} and cannot give {amount}")
        changed[key] = left
    return changed


def facts_in_words(facts: Facts) -> str:
    """Facts in the scenario language: ``balance=9000 owner=ann``."""
    return " ".join(f"{key}={value}" for key, value in sorted(facts.items()))


def in_words(message: Message) -> str:
    """A message in the scenario language: its word, then its facts."""
    return f"{message.what} {facts_in_words(message.facts)}".strip()


def global_state_in_words(state: GlobalState) -> list[str]:
    """One line per process, then one per channel, both sorted."""
    processes = [process_in_words(name, facts) for name, facts in sorted(state.states.items())]
    return processes + [channel_in_words(one, messages) for one, messages in sorted(state.channels.items())]


def process_in_words(name: ProcessName, facts: Facts) -> str:
    """``A balance=9000``."""
    return f"{name} {facts_in_words(facts)}".rstrip()


def channel_in_words(one: Channel, messages: Iterable[Message]) -> str:
    """``A -> B: transfer balance=1000, transfer balance=2000``, or ``A -> B: empty``."""
    return f"{one}: {', '.join(in_words(message) for message in messages) or 'empty'}"
