"""The assembler: collects the reports of a pending snapshot and assembles them into one global state.

Membership is fixed when the snapshot begins. One report is accepted from each member, only from the incarnation that is a
member, and only while the snapshot is pending; any other is refused with a reason. If reports contradict each other (protocol
rule 5), the ones that cause the contradictions are set aside: their processes count as missing, and the snapshot stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median_low

from detector.core.protocol import clock_offsets
from detector.core.snapshot import Snapshot
from detector.core.waits.channels import set_aside
from detector.core.waits.held_up_calls import tied
from detector.core.waits.resolved import Resolved, resolved
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, ProcessState, SnapshotId, SnapshotRef
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import PartyLook

ENTRIES_PER_MEMBER = 50
"""Number of waits and calls of a typical member, for estimating the work that a snapshot takes."""
HEAVY_ENTRIES_MIN = 5000
HEAVY_TIMES_MIN = 20
HEAVY_TYPICAL_MIN = 10
"""A report is heavy if it has ``HEAVY_TIMES_MIN`` times the entries of the median report (at least ``HEAVY_TYPICAL_MIN``), and
all such reports together have ``HEAVY_ENTRIES_MIN``. The others can be evaluated without them."""
DEFERRED = "its report is far larger than the others, which are evaluated first"


class Outcome(Enum):
    """How a snapshot ended. REJECTED occurs only in archives of earlier versions."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    REJECTED = "rejected"


class Refusal(Enum):
    """Why a report was refused. The initiator refuses the late ones: those that are for no pending snapshot."""

    NOT_A_MEMBER = "not a member"
    OTHER_INCARNATION = "other incarnation"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A finished snapshot. After a verification round the reports are the amended ones.

    ``orphans``: the contradictions (protocol rule 5) as sentences; the snapshot says which reports were set aside. ``settled``:
    by caller, its calls in doubt that this snapshot shows were answered. ``absent``: the members without a report.
    """

    snapshot: Snapshot
    outcome: Outcome
    begun_by: str
    reports: Mapping[ProcessName, Report]
    orphans: tuple[str, ...] = ()
    settled: Mapping[ProcessId, tuple[CallNumber, ...]] = field(default_factory=dict)
    absent: tuple[ProcessId, ...] = ()
    resolved: Resolved | None = field(default=None, repr=False, compare=False)
    """The resolved reports, which the next snapshot reuses."""


def reassembled(
    before: Assembled,
    reports: Mapping[ProcessName, Report],
    looks: Mapping[PartyName, PartyLook],
    earlier: Resolved | None = None,
) -> Assembled:
    """Assemble the same snapshot from amended reports, with ``looks`` as its evidence. Unchanged parts are reused.

    ``earlier``: the result of resolving similar reports, if they are more similar than those of ``before``.
    """
    if all(report is before.reports[name] for name, report in reports.items()):
        return replace(before, snapshot=replace(before.snapshot, looks=looks))
    found = _resolved(before.snapshot.ref, reports, before.absent, earlier or before.resolved)
    snapshot = _snapshot(before.snapshot.ref, reports, before.absent, found)
    snapshot = replace(snapshot, looks=looks, set_aside=before.snapshot.set_aside)
    return replace(before, snapshot=snapshot, reports=reports, resolved=found)


class PendingSnapshot:
    """A snapshot that has begun and is waiting for its members' reports."""

    def __init__(self, *, snapshot: SnapshotId, members: Mapping[ProcessName, ProcessId], begun: float, begun_by: str) -> None:
        """``begun``: when the markers were sent, in seconds by the detector's clock. ``begun_by``: the trigger."""
        self.id = snapshot
        self.members = dict(members)
        self.begun = begun
        self.begun_by = begun_by
        self.awaited = set(self.members)
        """Members that have not reported and are still expected to."""
        self.reported_at = begun
        """When the last report was accepted."""
        self.many_reported_at = -math.inf
        """When the last report was accepted after ``give_up_seconds`` while many were still awaited."""
        self.partly_evaluated_at = -math.inf
        """When the last partial evaluation began or ended."""
        self.partly_evaluating = False
        """Whether a partial evaluation is in progress."""
        self._evaluated = 0
        self._reports: dict[ProcessName, Report] = {}
        self._entries: dict[ProcessName, int] = {}
        self._entries_total = self._large_total = 0
        self._deferred: frozenset[ProcessName] = frozenset()

    @property
    def weight(self) -> int:
        """The snapshot's size in typical members: a single process may have as many waits as a whole fleet."""
        return len(self.members) + self._entries_total // ENTRIES_PER_MEMBER

    @property
    def heavy(self) -> frozenset[ProcessName]:
        """The members with heavy reports (see ``HEAVY_ENTRIES_MIN``)."""
        if self._large_total < HEAVY_ENTRIES_MIN:  # the usual case, made fast: this runs for each report
            return frozenset()
        typical = median_low(self._entries.get(name, 0) for name in self.members)
        bound = HEAVY_TIMES_MIN * max(typical, HEAVY_TYPICAL_MIN)
        large = {name: entries for name, entries in self._entries.items() if entries >= bound}
        return frozenset(large) if sum(large.values()) >= HEAVY_ENTRIES_MIN else frozenset()

    @property
    def unevaluated(self) -> int:
        """Number of reports, without heavy ones, that have arrived since the last partial evaluation."""
        return len(self._reports) - len(self.heavy) - self._evaluated

    def partial(self, now: float) -> PendingSnapshot:
        """A copy with the reports that have arrived and are not heavy. If it is TRUE of these, the others cannot change it."""
        part = PendingSnapshot(snapshot=self.id, members=self.members, begun=self.begun, begun_by=self.begun_by)
        part._deferred = self.heavy
        for name in self._reports.keys() - part._deferred:
            part.offer(self._reports[name])
        self.partly_evaluated_at, self._evaluated = now, len(part._reports)
        return part

    def offer(self, report: Report) -> Refusal | None:
        """Accept a member's report; returns the reason if it is refused, else None."""
        refusal = self.refusal(report.process)
        if refusal is not None:
            return refusal
        name = report.process.instance
        self._reports[name] = report
        self._entries[name] = entries = len(report.waits) + len(report.made) + len(report.served)
        self._entries_total += entries
        self._large_total += entries if entries >= HEAVY_TIMES_MIN * HEAVY_TYPICAL_MIN else 0
        self.awaited.discard(name)
        return None

    def refusal(self, process: ProcessId) -> Refusal | None:
        """Why a report of ``process`` would be refused; None if it would be accepted."""
        member = self.members.get(process.instance)
        if member is None:
            return Refusal.NOT_A_MEMBER
        if member.incarnation != process.incarnation:
            return Refusal.OTHER_INCARNATION
        return Refusal.DUPLICATE if process.instance in self._reports else None

    def stop_awaiting(self, process: ProcessName) -> None:
        """A member has left or is lost: do not wait for its report, but accept it if it comes."""
        self.awaited.discard(process)

    def await_again(self, process: ProcessId) -> None:
        """A process has joined: if it is the same incarnation of a member that has not reported, wait for its report again."""
        if self.members.get(process.instance) == process and process.instance not in self._reports:
            self.awaited.add(process.instance)

    def missing(self) -> tuple[ProcessName, ...]:
        """The members that have not reported, sorted."""
        return tuple(sorted(self.members.keys() - self._reports.keys()))

    def attendance(self, ended: float) -> Assembled:
        """A result that only shows which members reported, for a snapshot that is assembled elsewhere. Nothing is resolved."""
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
        """Assemble the reports. ``earlier``: the resolved reports of an earlier snapshot, so that only changes are resolved."""
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
                _snapshot(ref, reports, absent, found), set_aside={**dict.fromkeys(sorted(self._deferred), DEFERRED), **aside}
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
    shifted = clock_offsets.shifted(reports, ref.begun or 0.0, ref.ended or math.inf, known)
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
