"""The scenario language for FIFO channels: processes, channels, send, deliver, begin, look, restore, expect.

The commands (``[]`` is optional):

- ``algorithm markers`` or ``algorithm barriers``: the recording algorithm (default: markers); must come first.
- ``process NAME [key=value ...]``: a process and its facts. ``channel A -> B``: a FIFO channel. ``loop A -> B``: a
  channel that must close a cycle (barriers find it by themselves; this only checks it).
- ``send A -> B [WORD ...] [moving key=value ...] [then key=value ...]``: ``moving`` is subtracted from A's facts now and added
  to B's on receipt; ``then`` is set in A's facts in the same step.
- ``deliver A -> B [WORD ...] [then key=value ...]``: B receives the head; the words, if any, must be those of the
  message, or ``marker [ID]``, or ``barrier [ID]``.
- ``set A key=value ...``: an internal event. ``event A LABEL``: one that is only drawn. ``drain``: deliver all.
- ``begin A [ID]``: A begins snapshot ID (default: the next one, from 1). ``trigger [ID]``: all sources begin it.
- ``look NAME A`` and ``look NAME A -> B``: record one process or one channel manually, without an algorithm.
- ``restore ID``: continue in a new system restored from that snapshot.
- ``expect ...``: see :mod:`detector.simulator.scenario.expectations`; ``verdict`` and ``expect verdict``: see
  :mod:`detector.simulator.scenario.verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from detector.checkpoints.graph.depth_first import back_edges
from detector.checkpoints.protocol.barriers import BarrierRecorder
from detector.simulator.fifo.manual_recording import ManualRecording
from detector.simulator.fifo.system import FifoSystem, GlobalState, Marker, Recorder, global_state_in_words, in_words, markers
from detector.simulator.scenario.language import Line, Verb, facts_of, split_at
from stilltrue.fifo import Channel, Topology, channel
from stilltrue.model import Facts, Message, ProcessName, SnapshotId


class FifoStage:
    """Runs the commands above. ``printed``: the output lines; ``left``: the systems that a restore has replaced."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.looks: dict[str, ManualRecording] = {}
        self.left: list[FifoSystem] = []
        self._facts: dict[ProcessName, Facts] = {}
        self._channels: list[Channel] = []
        self._barriers = False
        self._system: FifoSystem | None = None
        self._shown: set[SnapshotId] = set()
        self._newest = 0

    @property
    def system(self) -> FifoSystem:
        """The system, created from the declarations on first use."""
        if self._system is None:
            topology = Topology.of(self._facts, self._channels)
            self._system = FifoSystem(topology, self._facts, recorder=barriers if self._barriers else markers)
        return self._system

    def verbs(self) -> dict[str, Verb]:
        """The commands by their first word."""
        return {
            "algorithm": self._algorithm,
            "process": self._process,
            "channel": self._channel,
            "loop": self._loop,
            "send": self._send,
            "deliver": self._deliver,
            "set": self._set,
            "event": self._event,
            "drain": self._drain,
            "begin": self._begin,
            "trigger": self._trigger,
            "look": self._look,
            "restore": self._restore,
        }

    def completed(self, snapshot: SnapshotId) -> GlobalState:
        """A completed snapshot; raises a ValueError that names the missing processes if it is not completed."""
        system = self.system
        if snapshot in system.snapshots:
            return system.snapshots[snapshot]
        pending = system.pending.get(snapshot)
        if pending is None:
            raise ValueError(f"snapshot {snapshot} has not begun")
        raise ValueError(f"snapshot {snapshot} is not completed: no record of {', '.join(pending.missing)}")

    def _algorithm(self, line: Line) -> None:
        if line.words[1:] not in (("markers",), ("barriers",)):
            raise ValueError("expected markers or barriers")
        self._barriers = line.words[1] == "barriers"

    def _process(self, line: Line) -> None:
        name = ProcessName(line.word(1, "a process"))
        if self._system is not None or name in self._facts:
            raise ValueError("processes and channels are declared once, before the first event")
        self._facts[name] = facts_of(line.words[2:])

    def _channel(self, line: Line) -> None:
        if self._system is not None:
            raise ValueError("processes and channels are declared once, before the first event")
        self._channels.append(channel_of(line.words[1:]))

    def _loop(self, line: Line) -> None:
        self._channel(line)
        if channel_of(line.words[1:]) not in back_channels(Topology.of(self._facts, self._channels)):
            raise ValueError("this channel does not close a cycle")

    def _send(self, line: Line) -> None:
        on, what = channel_of(line.words[1:4]), split_at(line.words[4:], "moving", "then")
        moving, then = facts_of(what.get("moving", ())), facts_of(what.get("then", ()))
        self.system.send(on, what=" ".join(what[""]), moving=moving, then=then)

    def _deliver(self, line: Line) -> None:
        on, parts = channel_of(line.words[1:4]), split_at(line.words[4:], "then")
        head = self.system.head(on)
        if head is not None and parts[""]:
            text = " ".join(parts[""])
            if text not in _names_of(head):
                raise ValueError(f"the head of {on} is {_names_of(head)[-1]!r}")
        self.system.deliver(on, then=facts_of(parts.get("then", ())))
        self._show_completed()

    def _set(self, line: Line) -> None:
        self.system.change(ProcessName(line.word(1, "a process")), facts_of(line.words[2:]))

    def _event(self, line: Line) -> None:
        self.system.change(ProcessName(line.word(1, "a process")), {}, label=" ".join(line.words[2:]))

    def _drain(self, _line: Line) -> None:
        self.system.drain()
        self._show_completed()

    def _begin(self, line: Line) -> None:
        self.system.begin(ProcessName(line.word(1, "a process")), self._number(line.words[2:]))
        self._show_completed()

    def _trigger(self, line: Line) -> None:
        snapshot = self._number(line.words[1:])
        topology = self.system.topology
        for name in topology.processes:
            if not set(topology.incoming(name)) - back_channels(topology):
                self.system.begin(name, snapshot)
        self._show_completed()

    def _look(self, line: Line) -> None:
        look = self.looks.setdefault(line.word(1, "a name"), ManualRecording())
        if "->" in line.words:
            look.at_channel(self.system, channel_of(line.words[2:]))
        else:
            look.at_process(self.system, ProcessName(line.word(2, "a process or a channel")))

    def _restore(self, line: Line) -> None:
        snapshot = self._number(line.words[1:])
        self.completed(snapshot)
        self.left.append(self.system)
        self._system = self.system.restored(snapshot)
        self._shown.clear()
        self.printed.append(f"restored from snapshot {snapshot}")

    def _number(self, words: Sequence[str]) -> SnapshotId:
        if not words:
            self._newest += 1
            return SnapshotId(self._newest)
        number = number_of(words)
        self._newest = max(self._newest, number)
        return number

    def _show_completed(self) -> None:
        for snapshot in sorted(self.system.snapshots):
            if snapshot not in self._shown:
                self._shown.add(snapshot)
                self.printed.append(f"snapshot {snapshot}")
                self.printed += [f"  {text}" for text in global_state_in_words(self.system.snapshots[snapshot])]


def barriers(process: ProcessName, topology: Topology) -> Recorder:
    """A recorder that uses asynchronous barriers; the back edges are computed from the graph."""
    incoming, outgoing = topology.incoming(process), topology.outgoing(process)
    return BarrierRecorder(process, incoming=incoming, outgoing=outgoing, back=back_channels(topology))


def back_channels(topology: Topology) -> frozenset[Channel]:
    """The channels that close a cycle, searched from the processes without incoming channels."""
    pairs = [(one.source, one.target) for one in topology.channels]
    starts = [name for name in topology.processes if not topology.incoming(name)]
    closing = back_edges([*starts, *topology.processes], pairs)
    return frozenset(one for one in topology.channels if (one.source, one.target) in closing)


def channel_of(words: Sequence[str]) -> Channel:
    """Parse ``A -> B`` as a channel; raises ValueError for anything else."""
    if len(words) != 3 or words[1] != "->":
        raise ValueError(f"expected A -> B, got {' '.join(words)!r}")
    return channel(words[0], words[2])


def _names_of(head: Marker | Message) -> tuple[str, ...]:
    if isinstance(head, Marker):
        number = head.snapshot
        return ("marker", "barrier", f"barrier {number}", f"marker {number}")
    return (head.what, in_words(head))  # a message's word, or its full text


def number_of(words: Sequence[str]) -> SnapshotId:
    """Parse a single word as a snapshot id; raises ValueError for anything else."""
    if len(words) != 1 or not words[0].isdecimal():
        raise ValueError("expected a snapshot id")
    return SnapshotId(int(words[0]))
