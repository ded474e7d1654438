"""The published EWD998 trace (tlaplus/Examples): `termination` is the truth at its consistent cuts, and stays so."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from detector.core.snapshot import Snapshot
from detector.predicates.termination import Termination
from stilltrue.model import Activity, Holds, Message, ProcessName, ProcessState

TRACE = Path(__file__).parents[3] / "shared" / "suites" / "ewd998" / "EWD998ChanTrace.ndjson"
CUTS = 300


@dataclass(frozen=True)
class Happening:
    """One event of one node: a payload sent or received, a deactivation, or something of the control's."""

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
Cut = tuple[int, ...]


@pytest.fixture(scope="module")
def trace() -> Trace:
    if not TRACE.exists():
        if os.environ.get("STILLTRUE_REQUIRE_SHARED") == "1":
            pytest.fail(f"{TRACE} is absent")
        pytest.skip("the published suites (../shared) are absent")
    lines = [json.loads(line) for line in TRACE.read_text(encoding="utf-8").splitlines()]
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


def snapshot(trace: Trace, cut: Cut) -> Snapshot:
    """The state in which each node has gone through its first ``cut[node]`` events."""
    active = [True] * len(trace)
    moving: Counter[tuple[int, int]] = Counter()
    for node, count in enumerate(cut):
        for one in trace[node][:count]:
            match one.kind:
                case "send":
                    moving[one.source, one.target] += 1
                case "receive":
                    moving[one.source, one.target] -= 1
                    active[node] = True
                case "deactivate":
                    active[node] = False
    assert min(moving.values(), default=0) >= 0, "received before it was sent: no consistent cut"
    return Snapshot(
        processes={
            ProcessName(f"n{node}"): ProcessState(activity=Activity.ACTIVE if one else Activity.IDLE)
            for node, one in enumerate(active)
        },
        in_transit=tuple(
            Message(source=ProcessName(f"n{source}"), target=ProcessName(f"n{target}"))
            for (source, target), count in sorted(moving.items())
            for _ in range(count)
        ),
    )


def terminated(trace: Trace, cut: Cut) -> bool:
    """The truth, seen from the trace's end: no event of the computation is left to happen."""
    return not any(one.counts for own, count in zip(trace, cut, strict=True) for one in own[count:])


def says(trace: Trace, cut: Cut) -> bool:
    verdict = Termination().evaluate(snapshot(trace, cut))
    assert verdict.holds is not Holds.UNDETERMINED
    return verdict.holds is Holds.TRUE


def closed(trace: Trace, wanted: Sequence[int]) -> Cut:
    """The smallest consistent cut with at least ``wanted[node]`` events of each node."""
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


def test_the_trace_is_the_published_one(trace: Trace) -> None:
    assert [len(trace), sum(map(len, trace))] == [5, 654]


@pytest.mark.parametrize("seed", range(3))
def test_at_every_prefix_of_a_linear_extension_termination_is_the_truth_and_stays_so(trace: Trace, seed: int) -> None:
    prefixes = list(extension(trace, Random(seed)))
    answers = [says(trace, cut) for cut in prefixes]
    assert len(answers) == 655
    assert answers == [terminated(trace, cut) for cut in prefixes]
    assert answers == sorted(answers), "once true, still true"
    assert answers[-1]
    assert not answers[0]


def test_at_random_consistent_cuts_termination_is_the_truth(trace: Trace) -> None:
    random = Random(998)
    cuts = {closed(trace, [len(own) - min(len(own), int(random.expovariate(0.05))) for own in trace]) for _ in range(CUTS)}
    for seed in range(5):
        cuts.update(random.sample(list(extension(trace, Random(100 + seed))), 400))
    assert len(cuts) >= 1_000
    wrong = [cut for cut in sorted(cuts) if says(trace, cut) != terminated(trace, cut)]
    assert wrong == []
    assert {terminated(trace, cut) for cut in cuts} == {True, False}
