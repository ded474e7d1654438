"""Records a system manually, one process or channel at a time without an algorithm, to show how states become inconsistent.

Chandy and Lamport 1985, section 3.1. For a channel c from p to q: n is the number of messages that p had sent on c when p was
recorded, n' the number when c was recorded; m is the number that q had received from c when q was recorded, m' the number when
c was recorded. A consistent state needs n = n' and m = m'.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from detector.simulator.fifo.system import FifoSystem, StepKind
from stilltrue.fifo import Channel
from stilltrue.model import Facts, Message, ProcessName


@dataclass(frozen=True, slots=True)
class _Counts:
    """The number of messages sent and received on each channel at one instant."""

    sent: dict[Channel, int]
    received: dict[Channel, int]


@dataclass(slots=True)
class ManualRecording:
    """A manual recording, each piece with the counts of its instant."""

    states: dict[ProcessName, Facts] = field(default_factory=dict)
    channels: dict[Channel, tuple[Message, ...]] = field(default_factory=dict)
    _process_counts: dict[ProcessName, _Counts] = field(default_factory=dict)
    _channel_counts: dict[Channel, _Counts] = field(default_factory=dict)

    def at_process(self, system: FifoSystem, process: ProcessName) -> None:
        """Record one process at this instant."""
        if process not in system.facts:
            raise ValueError(f"there is no process {process}")
        self.states[process] = system.facts[process]
        self._process_counts[process] = _counts(system)

    def at_channel(self, system: FifoSystem, one: Channel) -> None:
        """Record one channel's messages at this instant."""
        if one not in system.queues:
            raise ValueError(f"there is no channel {one}")
        self.channels[one] = system.now().channels[one]
        self._channel_counts[one] = _counts(system)

    def inconsistency(self, one: Channel) -> str:
        """How the recording of ``one`` contradicts its ends: ``n < n'``, ``n > n'``, ``m < m'``, ``m > m'``; else empty."""
        found = []
        if one.source in self.states and one in self.channels:
            n, n_ = self._process_counts[one.source].sent[one], self._channel_counts[one].sent[one]
            found += [f"n {'<' if n < n_ else '>'} n'"] * (n != n_)
        if one.target in self.states and one in self.channels:
            m, m_ = self._process_counts[one.target].received[one], self._channel_counts[one].received[one]
            found += [f"m {'<' if m < m_ else '>'} m'"] * (m != m_)
        return ", ".join(found)


def _counts(system: FifoSystem) -> _Counts:
    counts = _Counts(dict.fromkeys(system.queues, 0), dict.fromkeys(system.queues, 0))
    for step in system.steps:
        if step.channel is not None:
            side = counts.sent if step.kind is StepKind.SEND else counts.received
            side[step.channel] += 1
    return counts
