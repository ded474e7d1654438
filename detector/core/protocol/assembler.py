"""The assembler: reports in, one snapshot out. A pending snapshot and an assembled one are two types.

Membership is fixed when the snapshot begins. A report is taken from each member once, only from the incarnation that was a
member, and only while the snapshot is pending; all else is refused with a reason. Where reports contradict each other
(rule 5), those that make the contradictions are set aside: their processes are missing, and the snapshot stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median_low

from detector.core.protocol import clocks
from detector.core.snapshot import Snapshot
from detector.core.waits.channels import set_aside
from detector.core.waits.resolved import Resolved, resolved
from detector.core.waits.ties import tied
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, ProcessState, SnapshotId, SnapshotRef
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import PartyLook

ENTRIES_PER_MEMBER = 50
"""How many waits and calls an ordinary member has, where the work that a snapshot makes is estimated."""
HEAVY_ENTRIES_MIN = 5000
HEAVY_TIMES_MIN = 20
HEAVY_TYPICAL_MIN = 10
"""Reports with this multiple of the median one's entries (or of one with ``HEAVY_TYPICAL_MIN``), which together have this many,
are heavy: the others can be judged without them."""
PUT_OFF = "it is far larger than others, which are judged first"


class Outcome(Enum):
    """How a snapshot ended. REJECTED is read from archives of earlier versions only."""

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
    """A finished snapshot. ``orphans`` (rule 5) are sentences; whose reports were set aside for them is in the snapshot.

    ``settled``: by caller, the calls that it had in doubt and of which this snapshot shows that they were answered.
    ``absent`` are the members without a report. After a verification round the reports are the amended ones.
    """

    snapshot: Snapshot
    outcome: Outcome
    begun_by: str
    reports: Mapping[ProcessName, Report]
    orphans: tuple[str, ...] = ()
    settled: Mapping[ProcessId, tuple[CallNumber, ...]] = field(default_factory=dict)
    absent: tuple[ProcessId, ...] = ()
    resolved: Resolved | None = field(default=None, repr=False, compare=False)
    """What the reports came to, for the next snapshot."""


def reassembled(
    before: Assembled,
    reports: Mapping[ProcessName, Report],
    looks: Mapping[PartyName, PartyLook],
    earlier: Resolved | None = None,
) -> Assembled:
    """The same snapshot from amended reports; ``looks`` are its evidence. Parts that no report changes stay as they are.

    ``earlier``: what like reports came to, if that is nearer than what those of ``before`` did.
    """
    if all(report is before.reports[name] for name, report in reports.items()):
        return replace(before, snapshot=replace(before.snapshot, looks=looks))
    found = _resolved(before.snapshot.ref, reports, before.absent, earlier or before.resolved)
    snapshot = _snapshot(before.snapshot.ref, reports, before.absent, found)
    snapshot = replace(snapshot, looks=looks, set_aside=before.snapshot.set_aside)
    return replace(before, snapshot=snapshot, reports=reports, resolved=found)


class PendingSnapshot:
    """A snapshot that has begun and waits for its members' reports."""

    def __init__(self, *, snapshot: SnapshotId, members: Mapping[ProcessName, ProcessId], begun: float, begun_by: str) -> None:
        """``begun``: seconds, the detector's clock when the markers were sent; ``begun_by``: the trigger."""
        self.id = snapshot
        self.members = dict(members)
        self.begun = begun
        self.begun_by = begun_by
        self.awaited = set(self.members)
        """Those that have not reported and may still do so."""
        self.reported_at = begun
        """When the last report was taken."""
        self.judged_at = -math.inf
        """When what had been reported was judged last, before the end."""
        self._judged = 0
        self._reports: dict[ProcessName, Report] = {}
        self._entries: dict[ProcessName, int] = {}
        self._put_off: frozenset[ProcessName] = frozenset()

    @property
    def weight(self) -> int:
        """How large it is, in ordinary members: one process may have as many waits as a fleet."""
        return len(self.members) + sum(self._entries.values()) // ENTRIES_PER_MEMBER

    @property
    def heavy(self) -> frozenset[ProcessName]:
        """The members whose reports are far larger than those of most."""
        if not self._entries:
            return frozenset()
        typical = median_low(self._entries.get(name, 0) for name in self.members)
        bound = HEAVY_TIMES_MIN * max(typical, HEAVY_TYPICAL_MIN)
        large = {name: entries for name, entries in self._entries.items() if entries >= bound}
        return frozenset(large) if sum(large.values()) >= HEAVY_ENTRIES_MIN else frozenset()

    @property
    def worth(self) -> int:
        """How many reports that are not heavy have come since those so far were judged."""
        return len(self._reports) - len(self.heavy) - self._judged

    def so_far(self, now: float) -> PendingSnapshot:
        """The same with the reports that are there and not heavy: whatever the others say, a TRUE of these is one."""
        part = PendingSnapshot(snapshot=self.id, members=self.members, begun=self.begun, begun_by=self.begun_by)
        part._put_off = self.heavy
        for name in self._reports.keys() - part._put_off:
            part.offer(self._reports[name])
        self.judged_at, self._judged = now, len(part._reports)
        return part

    def offer(self, report: Report) -> Refusal | None:
        """Take a member's report; None when it was taken, else why not."""
        refusal = self.refusal(report.process)
        if refusal is not None:
            return refusal
        name = report.process.instance
        self._reports[name] = report
        self._entries[name] = len(report.waits) + len(report.made) + len(report.served)
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
        """A member has left: its report is no longer waited for, but is accepted if it comes."""
        self.awaited.discard(process)

    def back(self, process: ProcessId) -> None:
        """A process has come (back): if it is the member that had left, its report is waited for again."""
        if self.members.get(process.instance) == process and process.instance not in self._reports:
            self.awaited.add(process.instance)

    def missing(self) -> tuple[ProcessName, ...]:
        """The members that have not reported, sorted."""
        return tuple(sorted(self.members.keys() - self._reports.keys()))

    def attended(self, ended: float) -> Assembled:
        """Only which members reported, for a snapshot that is assembled elsewhere. Nothing is resolved."""
        absent, reports = tuple(self.members[name] for name in self.missing()), dict(sorted(self._reports.items()))
        ref = SnapshotRef(id=self.id, begun=self.begun, ended=ended, members=len(self.members))
        states = {name: ProcessState(service=report.process.service, labels=report.labels) for name, report in reports.items()}
        return Assembled(
            snapshot=Snapshot(ref=ref, processes=states, missing=tuple(member.instance for member in absent)),
            outcome=Outcome.INCOMPLETE if absent else Outcome.COMPLETE,
            begun_by=self.begun_by,
            reports=reports,
            absent=absent,
        )

    def assembled(self, ended: float, earlier: Resolved | None = None) -> Assembled:
        """The snapshot from the reports there are. ``earlier``: of a snapshot before, so that only what changed is resolved."""
        absent, reports = tuple(self.members[name] for name in self.missing()), dict(self._reports)
        ref = SnapshotRef(id=self.id, begun=self.begun, ended=ended, members=len(self.members))
        found = _resolved(ref, reports, absent, earlier)
        orphans = found.orphans()
        aside = set_aside(orphans)
        if aside:
            reports = {name: report for name, report in reports.items() if name not in aside}
            absent = tuple(member for name, member in sorted(self.members.items()) if name not in reports)
            found = _resolved(ref, reports, absent, earlier)
        connected = tied(reports, absent)
        if connected != reports:
            reports, found = connected, _resolved(ref, connected, absent, found)
        return Assembled(
            snapshot=replace(
                _snapshot(ref, reports, absent, found), set_aside={**dict.fromkeys(sorted(self._put_off), PUT_OFF), **aside}
            ),
            outcome=Outcome.INCOMPLETE if absent else Outcome.COMPLETE,
            begun_by=self.begun_by,
            reports=reports,
            orphans=tuple(orphan.text for orphan in orphans),
            settled=found.settled(),
            absent=absent,
            resolved=found,
        )


def _resolved(
    ref: SnapshotRef, reports: Mapping[ProcessName, Report], absent: Sequence[ProcessId], earlier: Resolved | None
) -> Resolved:
    known = {} if earlier is None else earlier.shifted
    shifted = clocks.shifted(reports, ref.begun or 0.0, ref.ended or 0.0, known)
    timed = {name: shifted[name].report if name in shifted else report for name, report in reports.items()}
    found = resolved(timed, absent, earlier)
    return found if not shifted and not found.shifted else replace(found, shifted=shifted)


def _snapshot(
    ref: SnapshotRef, reports: Mapping[ProcessName, Report], absent: Sequence[ProcessId], found: Resolved
) -> Snapshot:
    return Snapshot(
        ref=ref,
        processes=found.states,
        waits=found.waits,
        in_transit=found.in_transit,
        missing=tuple(member.instance for member in absent),
        forgetful=found.forgetful,
        doubts={name: reports[name].doubt for name in sorted(reports) if reports[name].doubt},
    )
