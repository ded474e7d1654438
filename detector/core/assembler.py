"""The assembler: reports in, one snapshot out. A pending snapshot and an assembled one are two types.

Membership is fixed when the snapshot begins. A report is taken from each member once, only from the incarnation that was a
member, and only while the snapshot is pending; all else is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

from detector.core.clocks import in_detector_time
from detector.core.resolution import Resolution
from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from stilltrue.model import CallNumber, ProcessId, ProcessName, ProcessState, SnapshotId, SnapshotRef
from stilltrue.protocol.report import Report


class Outcome(Enum):
    """How a snapshot ended."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    REJECTED = "rejected"


class Refusal(Enum):
    """Why a report was not taken."""

    NOT_A_MEMBER = "not a member"
    OTHER_INCARNATION = "other incarnation"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A finished snapshot. ``orphans`` (rule 5) are sentences, and why it was rejected; ``reports`` are kept as evidence.

    ``settled``: by caller, the calls that it had in doubt and of which this snapshot shows that they were answered.
    """

    snapshot: Snapshot
    outcome: Outcome
    begun_by: str
    reports: Mapping[ProcessName, Report]
    orphans: tuple[str, ...] = ()
    settled: Mapping[ProcessId, tuple[CallNumber, ...]] = field(default_factory=dict)


class PendingSnapshot:
    """A snapshot that has begun and waits for its members' reports."""

    def __init__(self, *, snapshot: SnapshotId, members: Mapping[ProcessName, ProcessId], begun: float, begun_by: str) -> None:
        """``begun``: seconds, the detector's clock when the marks went out; ``begun_by``: who or what wanted it."""
        self.id = snapshot
        self.members = dict(members)
        self.begun = begun
        self.begun_by = begun_by
        self.awaited = set(self.members)
        """Those that have not reported and may still do so."""
        self._reports: dict[ProcessName, Report] = {}

    def offer(self, report: Report) -> Refusal | None:
        """Take a member's report; None when it was taken, else why not."""
        refusal = self.refusal(report.process)
        if refusal is not None:
            return refusal
        name = report.process.instance
        self._reports[name] = report
        self.awaited.discard(name)
        return None

    def refusal(self, process: ProcessId) -> Refusal | None:
        """Why a report of ``process`` would not be taken."""
        member = self.members.get(process.instance)
        if member is None:
            return Refusal.NOT_A_MEMBER
        if member.incarnation != process.incarnation:
            return Refusal.OTHER_INCARNATION
        return Refusal.DUPLICATE if process.instance in self._reports else None

    def gone(self, process: ProcessName) -> None:
        """A member has left: nobody waits for its report, though it is taken if it comes."""
        self.awaited.discard(process)

    def back(self, process: ProcessId) -> None:
        """A process has come (back): if it is the member that had left, its report is waited for again."""
        if self.members.get(process.instance) == process and process.instance not in self._reports:
            self.awaited.add(process.instance)

    def missing(self) -> tuple[ProcessName, ...]:
        """The members that have not reported, sorted."""
        return tuple(sorted(self.members.keys() - self._reports.keys()))

    def assembled(self, ended: float, previous: WaitColumns | None = None) -> Assembled:
        """The snapshot from the reports there are; ``previous``: the waits of one that ended before this one began."""
        missing = [self.members[name] for name in self.missing()]
        timed = {name: in_detector_time(report, self.begun, ended) for name, report in self._reports.items()}
        resolution = Resolution(timed, missing)
        orphans = tuple(resolution.channels.orphans())
        outcome = Outcome.REJECTED if orphans else Outcome.INCOMPLETE if missing else Outcome.COMPLETE
        snapshot = Snapshot(
            ref=SnapshotRef(id=self.id, begun=self.begun, ended=ended, members=len(self.members)),
            processes={name: _state(self._reports[name]) for name in sorted(self._reports)},
            waits=WaitColumns.of(resolution.waits()),
            in_transit=tuple(sorted(resolution.in_transit(), key=attrgetter("source", "what"))),
            missing=tuple(member.instance for member in missing),
            forgetful=resolution.channels.forgetful(),
            previous=previous,
        )
        return Assembled(
            snapshot=snapshot,
            outcome=outcome,
            begun_by=self.begun_by,
            reports=dict(self._reports),
            orphans=orphans,
            settled={} if orphans else resolution.settled_doubts(),
        )


def _state(report: Report) -> ProcessState:
    return ProcessState(activity=report.activity, facts=report.facts, service=report.process.service, labels=report.labels)
