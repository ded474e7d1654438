"""A phantom deadlock over locks of the fleet, shown by cuts at different times: confirmed only if the waits truly lasted."""

from __future__ import annotations

from detector.core.assembler import PendingSnapshot
from detector.graph.columns import WaitColumns
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import ResourceTarget

P, Q = PartyName("p/task"), PartyName("q/task")


class Phantom:
    """p holds x and waits for y; q holds y and waits for x: each so at its own cut, never both at one instant."""

    def __init__(self) -> None:
        self.processes = {name: ProcessId(service="s", instance=ProcessName(name), incarnation=1) for name in ("p", "q")}
        self.recorders = {name: Recorder(process=process) for name, process in self.processes.items()}
        self.waits: dict[PartyName, WaitNumber] = {}

    def blocks(self, party: PartyName, holding: str, wanting: str) -> None:
        recorder = self.recorders[party.split("/")[0]]
        recorder.holds(party, f"store/{holding}")
        among = [ResourceTarget(resource=f"store/{wanting}")]
        self.waits[party] = recorder.waits(party, among, 0.0, uncoloured=True)

    def goes_on(self, party: PartyName, holding: str) -> None:
        recorder = self.recorders[party.split("/")[0]]
        recorder.resumes(self.waits.pop(party))
        recorder.releases(party, f"store/{holding}")

    def snapshot(self, number: int, previous: WaitColumns | None, *, lasting: bool) -> tuple[Holds, WaitColumns]:
        """p is cut while it is blocked; q after p has gone on, unless the waits are ``lasting``."""
        pending = PendingSnapshot(
            snapshot=SnapshotId(number),
            members={process.instance: process for process in self.processes.values()},
            begun=float(number),
            begun_by="test",
        )
        if P not in self.waits:
            self.blocks(P, "x", "y")
        self._cut(pending, "p", number)
        if not lasting:
            self.goes_on(P, "x")
        if Q not in self.waits:
            self.blocks(Q, "y", "x")
        self._cut(pending, "q", number)
        if not lasting:
            self.goes_on(Q, "y")
        snapshot = pending.assembled(number + 0.5, previous).snapshot
        return Deadlock().evaluate(snapshot).holds, snapshot.waits

    def _cut(self, pending: PendingSnapshot, name: str, number: int) -> None:
        report = self.recorders[name].marked(SnapshotId(number), float(number))
        assert report is not None
        assert pending.offer(report) is None


def test_a_phantom_is_undetermined_however_often_it_is_seen() -> None:
    phantom = Phantom()
    holds, seen = phantom.snapshot(1, None, lasting=False)
    assert holds is Holds.UNDETERMINED
    holds, _ = phantom.snapshot(2, seen, lasting=False)
    assert holds is Holds.UNDETERMINED, "the same parties wait for the same things, but not in the same waits"


def test_the_very_same_waits_in_two_snapshots_confirm() -> None:
    deadlock = Phantom()
    holds, seen = deadlock.snapshot(1, None, lasting=True)
    assert holds is Holds.UNDETERMINED
    holds, _ = deadlock.snapshot(2, seen, lasting=True)
    assert holds is Holds.TRUE
