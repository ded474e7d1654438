"""Recorders of calls beside the suite's servers: they cut at the very instants at which the markers make the servers cut.

Tokens given are a call whose outcome never reaches its sender: outstanding from then on, so in transit until a server's record
shows it (rule 4). Nothing is recorded on channels: what was on them follows from the reports (rule 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from detector.core.protocol.assembler import PendingSnapshot
from stilltrue.fifo import Channel
from stilltrue.model import Facts, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step
from tests.synthetic.random_snapshots import EPOCH_SECONDS, RandomSnapshot

THE_ONE = SnapshotId(1)
"""The markers' snapshots may overtake each other, and numbers that only rise cannot follow that: each is watched alone."""


class Beside:
    """One recorder a server. The fact ``tokens`` counts; ``token`` is that as a share of all there are, so 1 in all."""

    def __init__(self, tokens: Mapping[ProcessName, int], watched: SnapshotId) -> None:
        """``watched``: the one snapshot of the markers' that counts here."""
        self.watched = watched
        self.total = sum(tokens.values())
        self.reports: dict[ProcessName, Report] = {}
        self.members = {name: ProcessId(service=name, instance=name, incarnation=1) for name in tokens}
        self._recorders = {
            name: Recorder(process=process, reactive=True, bounds=Bounds(doubt_seconds_max=math.inf))
            for name, process in self.members.items()
        }
        for name, count in tokens.items():
            self._recorders[name].fact(self.facts(count))

    def facts(self, tokens: int) -> Facts:
        """What so many tokens are declared as."""
        return {"tokens": tokens, "token": tokens / self.total}

    def sent(self, on: Channel, tokens: int, *, left: int, now: float) -> Stamp:
        """Tokens are given up and sent in one step (rule 7)."""
        recorder = self._recorders[on.source]
        step = Step()
        step.carries(**self.facts(tokens))
        step.fact(**self.facts(left))
        _, stamp = recorder.sent(method=f"/{on.target}/Give", channel=self._channel(on.target), now=now, step=step)
        recorder.closed(step, now)
        return stamp

    def received(self, on: Channel, stamp: Stamp | None, *, has: int, now: float) -> None:
        """Tokens come, and are the server's own in the same step."""
        recorder = self._recorders[on.target]
        served, report = recorder.arrived(stamp, method="/Give", now=now)
        assert report is None, "the channels are FIFO: the marker came before the message that was sent after it"
        recorder.started(served)
        step = Step(served)
        step.fact(**self.facts(has))
        step.with_reply()
        recorder.closed(step, now)
        recorder.replied(served)

    def cut(self, server: ProcessName, snapshot: SnapshotId, *, now: float) -> None:
        """The server has cut."""
        if snapshot == self.watched:
            report = self._recorders[server].marked(THE_ONE, now)
            assert report is not None
            self.reports[server] = report

    def assembled(self, *, changed: Mapping[ProcessName, Report] | None = None) -> RandomSnapshot:
        """The snapshot of the reports, some of them ``changed`` by hand, as the detector assembles it."""
        begun = EPOCH_SECONDS + 60.0
        pending = PendingSnapshot(snapshot=THE_ONE, members=self.members, begun=begun, begun_by="N1")
        for report in (self.reports | dict(changed or {})).values():
            assert pending.offer(report) is None
        return RandomSnapshot(assembled=pending.assembled(begun + 1.0), members=dict(self.members))

    def with_tokens(self, server: ProcessName, more: int) -> RandomSnapshot:
        """The same snapshot, but that ``server`` has ``more`` tokens (fewer, if negative) than it had."""
        report = self.reports[server]
        facts = self.facts(int(report.facts["tokens"]) + more)
        return self.assembled(changed={server: replace(report, facts=facts)})

    def with_tokens_on_the_way(self, source: ProcessName, target: ProcessName, more: int) -> RandomSnapshot:
        """The same snapshot, but that what ``source`` gave ``target`` last is ``more`` tokens than it was."""
        report = self.reports[source]
        last = max(call.number for call in report.made if call.target == target)
        made = tuple(
            replace(call, facts=self.facts(int(call.facts["tokens"]) + more)) if call.number == last else call
            for call in report.made
        )
        return self.assembled(changed={source: replace(report, made=made)})

    def _channel(self, target: ProcessName) -> ChannelRecord:
        channel = ChannelRecord(target)
        channel.answered_by(target, 1)
        return channel
