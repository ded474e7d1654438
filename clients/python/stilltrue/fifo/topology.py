"""Which processes there are and which channels join them, and whether a snapshot begun somewhere ends everywhere.

Section 3.3 of the paper: every process cuts in finite time when it is reached, over channels, from a process that
begins; and all are reached from anywhere when the graph is strongly connected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stilltrue.fifo.model import Channel
from stilltrue.model import ProcessName


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes and channels of a system, sorted; ``Topology.of`` builds and checks one."""

    processes: tuple[ProcessName, ...]
    channels: tuple[Channel, ...]

    @classmethod
    def of(cls, processes: Iterable[ProcessName], channels: Iterable[Channel]) -> Topology:
        """Sort and check; ValueError for a name given twice, a channel given twice, or one with an unknown end."""
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
        """The processes that no marker begun by ``beginners`` can reach: a snapshot ends only if there are none."""
        reached = set(beginners)
        ahead = sorted(reached)
        following = _following(self.channels)
        while ahead:
            for target in following.get(ahead.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    ahead.append(target)
        return tuple(name for name in self.processes if name not in reached)

    def strongly_connected(self) -> bool:
        """Whether anybody's snapshot ends everywhere, and everybody's record comes to everybody."""
        if len(self.processes) < 2:
            return True
        one = self.processes[0]
        backwards = tuple(Channel(source=way.target, target=way.source, name=way.name) for way in self.channels)
        reversed_ = Topology(self.processes, backwards)
        return not self.unreached((one,)) and not reversed_.unreached((one,))


def _following(channels: Iterable[Channel]) -> dict[ProcessName, list[ProcessName]]:
    following: dict[ProcessName, list[ProcessName]] = {}
    for one in channels:
        following.setdefault(one.source, []).append(one.target)
    return following
