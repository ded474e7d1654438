"""The published EWD998 trace played by real recorders and a real initiator, which takes snapshots while it goes on.

A payload is a call whose sender never hears of it again: in doubt from its first step, so in transit until a server's record
shows it (rule 8). The control's own messages are no part of the computation and are not recorded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from random import Random

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Begin, Effect, Finish, Initiator
from detector.core.protocol.pace import Timing
from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp
from tests.external.ewd998 import Cut, Happening, Trace, extension
from tests.synthetic.random_snapshots import EPOCH_SECONDS, RandomSnapshot

STEP_SECONDS = 60.0
GIVE_UP_STEPS = 40
METHOD = "/Payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How snapshots are taken: which share of the pending marks comes at each step, which share of the reports is lost."""

    marks_share: float = 1.0
    lost_share: float = 0.0


AT_ONCE = Manner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A finished snapshot, where each process was when it cut (-1: no report of it came), and where all were at both ends."""

    made: RandomSnapshot
    cut: Cut
    begun: Cut
    ended: Cut


def play(trace: Trace, random: Random, manner: Manner = AT_ONCE, *, began: float = EPOCH_SECONDS) -> list[Taken]:
    """Play one linear extension of ``trace``, ask for a snapshot at each step, and answer with them by their ids."""
    run = _Run(trace, random, manner, began)
    for cut in extension(trace, random):
        run.goes_to(cut)
    run.ends()
    return sorted(run.taken, key=lambda taken: taken.made.assembled.snapshot.ref.id or 0)


@dataclass(frozen=True, slots=True)
class _Mark:
    snapshot: SnapshotId
    process: int
    settled: tuple[CallNumber, ...]


class _Run:
    """The processes, what is under way between them, and the snapshots of them."""

    def __init__(self, trace: Trace, random: Random, manner: Manner, began: float) -> None:
        self.taken: list[Taken] = []
        self._trace, self._random, self._manner, self._now = trace, random, manner, began
        count = len(trace)
        self._ids = [ProcessId(service=f"n{at}", instance=ProcessName(f"n{at}"), incarnation=1) for at in range(count)]
        bounds = Bounds(doubt_seconds_max=math.inf)
        self._recorders = [Recorder(process=process, bounds=bounds) for process in self._ids]
        self._channels = [[_connected(target) for target in self._ids] for _ in range(count)]
        self._moving: dict[tuple[int, int], deque[Stamp]] = {}
        self._at: Cut = (0,) * count
        self._marks: list[_Mark] = []
        self._begun: dict[SnapshotId, Cut] = {}
        self._cuts: dict[tuple[SnapshotId, ProcessName], int] = {}
        timing = Timing(period_seconds=0, give_up_seconds=GIVE_UP_STEPS * STEP_SECONDS, suspect_seconds=3 * STEP_SECONDS)
        self._initiator = Initiator(timing)
        for process in self._ids:
            self._obey(self._initiator.joined(process, SnapshotId(0), self._now))

    def goes_to(self, cut: Cut) -> None:
        """At most one more event happens; then a snapshot is asked for, and some marks come."""
        self._now += STEP_SECONDS
        for process, (before, after) in enumerate(zip(self._at, cut, strict=True)):
            for happening in self._trace[process][before:after]:
                self._happens(happening)
        self._at = cut
        self._obey(self._initiator.asked(0, self._now))
        self._step()

    def ends(self) -> None:
        """Nothing happens any more, but what is under way of snapshots."""
        while self._begun:
            self._now += STEP_SECONDS
            self._step()

    def _step(self) -> None:
        share = self._manner.marks_share
        come = [mark for mark in self._marks if share == 1.0 or self._random.random() < share]
        self._marks = [mark for mark in self._marks if mark not in come]
        for mark in come:
            recorder = self._recorders[mark.process]
            recorder.doubts_settled(mark.settled)
            self._cut(recorder.marked(mark.snapshot, self._now))
        self._obey(self._initiator.ticked(self._now))

    def _happens(self, happening: Happening) -> None:
        recorder = self._recorders[happening.node]
        match happening.kind:
            case "send":
                channel = self._channels[happening.source][happening.target]
                made, stamp = recorder.sent(method=METHOD, channel=channel, now=self._now)
                recorder.settled(made, None, self._now, in_doubt=True)
                self._moving.setdefault((happening.source, happening.target), deque()).append(stamp)
            case "receive":
                stamp = self._moving[happening.source, happening.target].popleft()
                served, report = recorder.arrived(stamp, method=METHOD, now=self._now)
                self._cut(report)
                recorder.started(served)
                recorder.active()
                recorder.replied(served)
            case "deactivate":
                recorder.idle()

    def _cut(self, report: Report | None) -> None:
        """A process has cut (before what happens to it now, if it is a message that made it)."""
        if report is None:
            return
        name = report.process.instance
        share = self._manner.lost_share
        if not share or self._random.random() >= share:
            for snapshot in range(report.after + 1, report.snapshot + 1):
                self._cuts[SnapshotId(snapshot), name] = self._at[int(name[1:])]
            self._obey(self._initiator.reported(report, self._now))

    def _obey(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Begin():
                    self._begun[effect.snapshot] = self._at
                    names = {process.instance: at for at, process in enumerate(self._ids)}
                    self._marks += [
                        _Mark(effect.snapshot, names[name], effect.settled.get(name, ())) for name in effect.members
                    ]
                case Finish(assembled=assembled):
                    self._finished(assembled)

    def _finished(self, assembled: Assembled) -> None:
        snapshot = assembled.snapshot.ref.id
        assert snapshot is not None
        reported = assembled.reports
        cut = tuple(self._cuts[snapshot, one.instance] if one.instance in reported else -1 for one in self._ids)
        members = {process.instance: process for process in self._ids}
        made = RandomSnapshot(assembled=assembled, members=members)
        self.taken.append(Taken(made=made, cut=cut, begun=self._begun.pop(snapshot), ended=self._at))


def _connected(target: ProcessId) -> ChannelRecord:
    channel = ChannelRecord(target.instance)
    channel.answered_by(target.instance, target.incarnation)
    return channel
