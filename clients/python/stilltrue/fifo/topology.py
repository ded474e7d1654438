"""The graph of processes and channels, and whether a snapshot begun at one process reaches all others.

Section 3.3 of the paper: a process cuts in finite time if it can be reached, over channels, from a process that begins. In a
strongly connected graph every process can be reached from any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stilltrue.fifo.model import Channel
from stilltrue.model import ProcessName


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes and channels of a system, sorted; created and checked by ``Topology.of``."""

    processes: tuple[ProcessName, ...]
    channels: tuple[Channel, ...]

    @classmethod
    def of(cls, processes: Iterable[ProcessName], channels: Iterable[Channel]) -> Topology:
        """Sort and check. Raises ValueError for a duplicate name, a duplicate channel, or a channel with an unknown end."""
        names, ways = sorted(processes), sorted(channels)
        known = set(names)
        if len(known) != len(names):
            raise ValueError("duplicate process name")
        if len(set(ways)) != len(ways):
            raise ValueError("duplicate channel")
        for one in ways:
            for end in (one.source, one.target):
                if end not in known:
                    raise ValueError(f"channel {one} names {end}, which is not a process")
        return cls(tuple(names), tuple(ways))

    def incoming(self, process: ProcessName) -> tuple[Channel, ...]:
        """The channels that end in ``process``, sorted."""
        return tuple(one for one in self.channels if one.target == process)

    def outgoing(self, process: ProcessName) -> tuple[Channel, ...]:
        """The channels that start in ``process``, sorted."""
        return tuple(one for one in self.channels if one.source == process)

    def neighbours(self, process: ProcessName) -> tuple[ProcessName, ...]:
        """The processes that share a channel with ``process``, sorted."""
        shared = (*self.incoming(process), *self.outgoing(process))
        return tuple(sorted({end for one in shared for end in (one.source, one.target)} - {process}))

    def unreached(self, beginners: Iterable[ProcessName]) -> tuple[ProcessName, ...]:
        """The processes that no marker from ``beginners`` can reach; a snapshot ends only if there are none."""
        reached = set(beginners)
        stack = sorted(reached)
        targets = _targets(self.channels)
        while stack:
            for target in targets.get(stack.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    stack.append(target)
        return tuple(name for name in self.processes if name not in reached)

    def strongly_connected(self) -> bool:
        """Whether every process can be reached from every other, as snapshots and flooding require."""
        if len(self.processes) < 2:
            return True
        one = self.processes[0]
        backwards = tuple(Channel(source=way.target, target=way.source, name=way.name) for way in self.channels)
        reversed_ = Topology(self.processes, backwards)
        return not self.unreached((one,)) and not reversed_.unreached((one,))


def _targets(channels: Iterable[Channel]) -> dict[ProcessName, list[ProcessName]]:
    targets: dict[ProcessName, list[ProcessName]] = {}
    for one in channels:
        targets.setdefault(one.source, []).append(one.target)
    return targets
