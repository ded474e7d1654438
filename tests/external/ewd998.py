"""The published EWD998 trace (tlaplus/Examples): its events, its consistent cuts, and whether it had terminated there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

TRACE = "suites/ewd998/EWD998ChanTrace.ndjson"


@dataclass(frozen=True)
class Happening:
    """One event of one process: a payload sent or received, a deactivation, or something of the control's."""

    node: int
    clock: tuple[int, ...]
    kind: str
    source: int = -1
    target: int = -1

    @property
    def counts(self) -> bool:
        """Whether it is part of the computation (the control's own messages are none)."""
        return self.kind != "control"


Trace = list[list[Happening]]
"""Each process's own events, in its order."""
Cut = tuple[int, ...]
"""How many of its events each process has behind it."""


def read_trace(path: Path) -> Trace:
    """The events of the file, which has them in no order."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    nodes = int(lines[0]["N"])
    events: Trace = [[] for _ in range(nodes)]
    for line in lines[1:]:
        happening = _happening(line, nodes)
        events[happening.node].append(happening)
    for node, own in enumerate(events):
        own.sort(key=lambda one: one.clock[node])
    return events


def _happening(line: dict[str, Any], nodes: int) -> Happening:
    packet = line["pkt"]
    clock = tuple(int(packet["vc"].get(str(node), 0)) for node in range(nodes))
    if line["event"] == "d":
        return Happening(line["node"], clock, "deactivate")
    if packet["msg"]["type"] != "pl":
        return Happening(line["node"], clock, "control")
    kind = "send" if line["event"] == ">" else "receive"
    return Happening(line["node"], clock, kind, packet["snd"], packet["rcv"])


def terminated(trace: Trace, cut: Cut) -> bool:
    """The truth, seen from the trace's end: no event of the computation is left to happen."""
    return not any(one.counts for own, count in zip(trace, cut, strict=True) for one in own[count:])


def closed(trace: Trace, wanted: Sequence[int]) -> Cut:
    """The smallest consistent cut with at least ``wanted[node]`` events of each process."""
    cut = list(wanted)
    while True:
        last = [trace[at][count - 1].clock for at, count in enumerate(cut) if count]
        known = [max((clock[node] for clock in last), default=0) for node in range(len(trace))]
        grown = [sum(one.clock[node] <= known[node] for one in trace[node]) for node in range(len(trace))]
        grown = [max(old, new) for old, new in zip(cut, grown, strict=True)]
        if grown == cut:
            return tuple(cut)
        cut = grown


def extension(trace: Trace, random: Random) -> Iterator[Cut]:
    """The prefixes of one linear extension of the trace, from none of its events to all."""
    cut = [0] * len(trace)
    yield tuple(cut)
    while True:
        able = [
            node for node in range(len(trace)) if cut[node] < len(trace[node]) and _ready(trace, cut, trace[node][cut[node]])
        ]
        if not able:
            assert cut == [len(own) for own in trace]
            return
        cut[random.choice(able)] += 1
        yield tuple(cut)


def _ready(trace: Trace, cut: Sequence[int], happening: Happening) -> bool:
    """Whether all that ``happening`` knows of has happened."""
    return all(
        node == happening.node or cut[node] == len(own) or own[cut[node]].clock[node] > happening.clock[node]
        for node, own in enumerate(trace)
    )
