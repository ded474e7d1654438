"""The initiator: when to begin a snapshot, which number it gets, and when to abandon it. The time is an argument.

Rules:

1. Ids only rise; a process's colour that is ahead advances them.
2. A snapshot begins when one is asked for, when a process requests one (a bounded number of times a second, and not if one that
   began a moment ago shows the same), and once a period, but not while another is in progress or being judged, nor right after
   one that took long. Never more than ``pending_snapshots_max`` are in progress: requests that come meanwhile wait until one
   has ended. The last place is for questions: processes that request snapshots all the time hold no question up.
3. It ends when every member has reported. Members that missed the last one are waited for briefly, the others until
   ``give_up_seconds``, or somewhat longer while many still report; it is incomplete then. Who reports later than that is waited
   for briefly still.
4. A question is answered from a snapshot that began after it.
5. While many processes join at once (a detector's restart, a rollout) only questions begin snapshots, for a bounded time: what
   half of a fleet reports is worth little, and reading it keeps the other half waiting.
6. A crowd of questions shares snapshots: while many wait at once, a pause is kept between snapshots that are begun for
   questions. One snapshot for every few of them would take the time in which the others could be heard.
7. A question does not wait for members whose reports do not matter to it: where a snapshot lasts, what has been reported is
   judged meanwhile; so it is where a few reports are far larger than the others. Only a TRUE answers a question then. A
   snapshot that has been judged so far ends in its time if it keeps a question from its own, whatever is still unread.

The rates of rules 2, 5 and 6 are kept by :class:`~detector.core.protocol.pace.Pace`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from detector.core.protocol.assembler import Assembled, PendingSnapshot, Refusal
from detector.core.protocol.pace import Pace, Timing
from detector.core.protocol.story import SnapshotLog
from detector.core.waits.resolved import Resolved
from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Report

BEGUN_MAX = 1000
"""Snapshots of which it is remembered when they began."""
COMING_SECONDS = 0.5
"""Rule 3: while many are awaited, and the last report came less than this ago, more are coming."""
COMING_GIVE_UPS_MAX = 5
"""Rule 3: how many times ``give_up_seconds`` a snapshot takes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Send a marker for ``snapshot`` to each of ``members``, and with it the calls in doubt that are ``settled``."""

    snapshot: SnapshotId
    members: tuple[ProcessName, ...]
    settled: Mapping[ProcessName, tuple[CallNumber, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A snapshot has ended; ``tickets`` are the questions that it answers."""

    assembled: Assembled
    tickets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assemble:
    """A large snapshot has ended ``at`` this time: assemble it (anywhere), and tell :meth:`Initiator.assembled` the result."""

    pending: PendingSnapshot
    at: float
    earlier: Resolved | None
    tickets: tuple[int, ...] = ()

    def assembled(self) -> Assembled:
        """The snapshot."""
        return self.pending.assembled(self.at, self.earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """Rule 7: a snapshot goes on, or takes long to assemble; a TRUE of these reports answers ``tickets``."""

    part: PendingSnapshot
    at: float
    tickets: tuple[int, ...]

    def assembled(self, earlier: Resolved | None) -> Assembled:
        """The snapshot, with all others missing. ``earlier``: of the last such part."""
        return self.part.assembled(self.at, earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A report was refused."""

    process: ProcessName
    reason: Refusal


Effect = Begin | Finish | Assemble | SoFar | Refuse


class Initiator:
    """Begins snapshots and ends them; each event returns its effects, in order."""

    def __init__(
        self,
        timing: Timing | None = None,
        *,
        first: SnapshotId = SnapshotId(1),
        apart_min: float = math.inf,
        so_far_seconds: float = math.inf,
    ) -> None:
        """``first``: the first id to give (above all that were ever given).

        ``so_far_seconds``: after how long rule 7 applies.

        ``apart_min``: a snapshot of this many members, or with as many waits and calls, ends as :class:`Assemble`, to be
        assembled elsewhere.
        """
        self.timing = timing = timing or Timing()
        self._pace = Pace(timing)
        self._apart_min = apart_min
        self._so_far_seconds = so_far_seconds
        self.next_id = first
        self._members: dict[ProcessName, ProcessId] = {}
        self._pending: dict[SnapshotId, PendingSnapshot] = {}
        self._begun: dict[SnapshotId, float] = {}
        self._tickets: dict[SnapshotId, tuple[int, ...]] = {}
        self._asking: list[int] = []
        self._requester: ProcessName | None = None
        self._newest_begun = -math.inf
        self._newest_members: Mapping[ProcessName, ProcessId] = {}
        self._periodic_at = -math.inf
        self._suspects: set[ProcessName] = set()
        self._log = SnapshotLog()
        self._lost: set[ProcessName] = set()
        self.paused = False
        """While true no snapshot begins: those that have ended wait to be evaluated."""
        self._judging = False
        self._rest_until = -math.inf
        self._settled: dict[ProcessId, tuple[CallNumber, ...]] = {}
        self._resolved: Resolved | None = None

    # -- members -------------------------------------------------------------------------------------------------------

    def joined(self, process: ProcessId, colour: SnapshotId, now: float) -> list[Effect]:
        """A process is a member from the next snapshot on; its other incarnation no longer is."""
        effects = self.left(process.instance, now)
        self._pace.joined(now)
        self._members[process.instance] = process
        self._lost.discard(process.instance)
        for pending in self._pending.values():
            pending.back(process)
        self.advance(colour)
        return effects

    def left(self, process: ProcessName, now: float) -> list[Effect]:
        """A process is no longer a member; pending snapshots still expect it, but do not wait for it."""
        self._lost.discard(process)
        if self._members.pop(process, None) is None:
            return []
        for pending in self._pending.values():
            pending.gone(process)
        return self._settle(now)

    def lost(self, process: ProcessName, now: float) -> list[Effect]:
        """A member cannot be reached: snapshots still expect it, but do not wait for it until it joins again."""
        self._lost.add(process)
        for pending in self._pending.values():
            pending.gone(process)
            self._log.record(now, f"{process} is lost", pending.id)
        return self._settle(now)

    def advance(self, colour: SnapshotId) -> None:
        """Rule 1: a process is known to have cut for ``colour``."""
        self.next_id = SnapshotId(max(self.next_id, colour + 1))

    @property
    def members(self) -> tuple[ProcessName, ...]:
        """The names of the members, sorted."""
        return tuple(sorted(self._members))

    # -- what makes a snapshot begin (rule 2) --------------------------------------------------------------------------

    def asked(self, ticket: int, now: float, waiting: int = 1) -> list[Effect]:
        """A question arrived, as one of ``waiting``; the ``Finish`` that answers it has the ticket."""
        self._pace.asked(waiting, now)
        self._asking.append(ticket)
        return self._begin_wanted(now)

    def requested(self, process: ProcessName, now: float, covered_seconds: float = 0.0) -> list[Effect]:
        """A process requests a snapshot: one of its parties has been blocked for long.

        One of it that began within ``covered_seconds`` shows that as well (rule 2).
        """
        if process in self._newest_members and now - self._newest_begun < covered_seconds:
            return []
        self._requester = process
        return self._begin_wanted(now)

    def ticked(self, now: float) -> list[Effect]:
        """Time has passed."""
        return self._settle(now, late=True) + self._begin_wanted(now)

    def due(self, now: float) -> float:
        """When :meth:`ticked` has something to do next (seconds; infinity: never)."""
        times = [self._deadline(pending) for pending in self._pending.values()]
        if self._has_room():
            if self._is_periodic():
                times.append(self._periodic_due())
            if self._requester is not None:
                times.append(max(self._pace.grants_at(now), self._pace.rush_until(len(self._members))))
        if self._asking and self._has_room(question=True):
            times.append(self._pace.crowd_until(now))
        return max(now, min(times, default=math.inf))

    # -- reports -------------------------------------------------------------------------------------------------------

    def reported(self, report: Report, now: float) -> list[Effect]:
        """A report came: it serves every pending snapshot in (after, snapshot] (rule 2 of the recorder)."""
        name = report.process.instance
        self.has_cut(name, report.snapshot, now)
        meant = [pending for pending in self._pending.values() if report.after < pending.id <= report.snapshot]
        if not meant:
            return [Refuse(process=name, reason=Refusal.LATE)]
        effects: list[Effect] = []
        for pending in meant:
            refusal = pending.offer(report)
            if refusal is not None:
                effects.append(Refuse(process=name, reason=refusal))
            else:
                pending.reported_at = now
            outcome = "is taken" if refusal is None else f"is refused ({refusal.value})"
            cut = f"next call {report.next_number}, cut for ({report.after}, {report.snapshot}]"
            self._log.record(now, f"the report of {name} {outcome}: {cut}", pending.id)
        return effects + self._settle(now) + self._begin_wanted(now)

    def refusal(self, process: ProcessId, after: SnapshotId, snapshot: SnapshotId) -> Refusal | None:
        """Why a report of ``process`` for the snapshots in (after, snapshot] would be refused; None when it would be taken."""
        meant = [pending for pending in self._pending.values() if after < pending.id <= snapshot]
        refusals = [pending.refusal(process) for pending in meant]
        return None if None in refusals else next(iter(refusals), Refusal.LATE)

    def has_cut(self, process: ProcessName, snapshot: SnapshotId, now: float) -> None:
        """A process has cut for ``snapshot``, though its report may be too late.

        It is waited for as the others are from now on (rule 3), if this is the newest snapshot, or not older than one may get.
        """
        if snapshot >= self.next_id - 1 or now <= self._begun.get(snapshot, -math.inf) + self.timing.give_up_seconds:
            self._suspects.discard(process)
        self.advance(snapshot)

    # -- what has been reported so far (rule 7) ------------------------------------------------------------------------

    def so_far(self, now: float) -> list[Effect]:
        """Time has passed: what is to be judged before its snapshot has ended."""
        effects: list[Effect] = [self._part(one, now) for one in self._pending.values() if now >= self._part_due(one)]
        over = [one for one in self._in_the_way() if now >= self._deadline(one)]
        for one in over:
            effects += self._finish(one, now)
        return effects + (self._begin_wanted(now) if over else [])

    def so_far_due(self) -> float:
        """When :meth:`so_far` has something to do next (infinity: never)."""
        times = [*map(self._part_due, self._pending.values()), *map(self._deadline, self._in_the_way())]
        return min(times, default=math.inf)

    def _in_the_way(self) -> list[PendingSnapshot]:
        """Snapshots that have been judged so far and keep a question from its own."""
        full = self._asking and not self.paused and not self._has_room(question=True)
        return [one for one in self._pending.values() if full and one.judged_at > -math.inf]

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _begin_wanted(self, now: float) -> list[Effect]:
        """Rule 2: begin one snapshot if one is wanted and there is room; it serves all pending requests."""
        by = self._wanted_by(now)
        if by is None:
            return []
        snapshot = self.next_id
        self.next_id = SnapshotId(snapshot + 1)
        pending = PendingSnapshot(snapshot=snapshot, members=self._members, begun=now, begun_by=by)
        self._pending[snapshot] = pending
        self._newest_begun, self._newest_members = now, pending.members
        self._begun[snapshot] = now
        if len(self._begun) > BEGUN_MAX:
            del self._begun[next(iter(self._begun))]
        for name in self._lost:
            self._pending[snapshot].gone(name)
        self._tickets[snapshot] = tuple(self._asking)
        self._pace.begun(now, for_questions=bool(self._asking))
        self._asking.clear()
        self._requester = None
        self._periodic_at = now
        self._log.record(now, f"begins for {by}: markers to {', '.join(self.members) or 'no member'}", snapshot)
        begin = Begin(snapshot=snapshot, members=self.members, settled=self._settled_members())
        return [begin, *self._settle(now)]

    def _settled_members(self) -> dict[ProcessName, tuple[CallNumber, ...]]:
        """By member, its calls in doubt that were answered. Sent once: a doubt that lasts shows up again."""
        settled = {
            process.instance: numbers
            for process, numbers in self._settled.items()
            if self._members.get(process.instance) == process
        }
        self._settled.clear()
        return settled

    def _has_room(self, *, question: bool = False) -> bool:
        """Rule 2: whether one more snapshot may be in progress."""
        most = self.timing.pending_snapshots_max
        return not self.paused and len(self._pending) < (most if question else max(1, most - 1))

    def _wanted_by(self, now: float) -> str | None:
        if self._asking and self._has_room(question=True) and now >= self._pace.crowd_until(now):
            return "ask"
        if not self._has_room() or now < self._pace.rush_until(len(self._members)):
            return None
        if self._requester is not None and self._pace.grant(now):
            return self._requester
        if self._is_periodic() and now >= self._periodic_due():
            return "period"
        return None

    def _is_periodic(self) -> bool:
        """Whether a snapshot may begin for its period alone: one that takes longer is not overtaken."""
        return bool(self.timing.period_seconds and self._members and not self._pending and not self._judging)

    def _periodic_due(self) -> float:
        return max(self._periodic_at + self.timing.period_seconds, self._rest_until, self._pace.rush_until(len(self._members)))

    def judging(self) -> None:
        """A snapshot that has ended is being judged."""
        self._judging = True

    def judged(self, now: float) -> None:
        """All that have ended are judged. What took long is followed by a pause as long, of a period at most: for all else."""
        self._judging = False
        self._rest(self._periodic_at, now)

    def _rest(self, begun: float, now: float) -> None:
        self._rest_until = now + min(now - begun, self.timing.period_seconds)

    def _deadline(self, pending: PendingSnapshot) -> float:
        """Rule 3: until when this snapshot waits for the members that are still to report."""
        if not pending.awaited:
            return pending.begun
        timing = self.timing
        due = pending.begun + (timing.suspect_seconds if pending.awaited <= self._suspects else timing.give_up_seconds)
        if len(pending.awaited) < timing.rush_members:
            return due
        end = pending.begun + COMING_GIVE_UPS_MAX * timing.give_up_seconds
        return max(due, min(pending.reported_at + COMING_SECONDS, end))

    def _settle(self, now: float, *, late: bool = False) -> list[Effect]:
        """End every snapshot that is due (rule 3), the oldest first. ``late``: a member that has not reported by now is late.

        That is for :meth:`ticked` to say: what brings other news may just have been held up itself.
        """
        over = [one for one in self._pending.values() if not one.awaited or (late and now >= self._deadline(one))]
        return [effect for pending in over for effect in self._finish(pending, now)]

    def _part_due(self, pending: PendingSnapshot) -> float:
        """Rule 7: when what has been reported is judged, if there is more than the last time."""
        wanted = pending.worth > 0 and self._tickets.get(pending.id)
        return max(pending.begun, pending.judged_at) + self._so_far_seconds if wanted else math.inf

    def _part(self, pending: PendingSnapshot, now: float) -> SoFar:
        return SoFar(part=pending.so_far(now), at=now, tickets=self._tickets.get(pending.id, ()))

    def _finish(self, pending: PendingSnapshot, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._so_far_seconds < math.inf and pending.heavy and pending.worth:
            effects.append(self._part(pending, now))
        del self._pending[pending.id]
        if now > pending.begun + self.timing.period_seconds:
            self._rest(pending.begun, now)
        self._suspects.update(name for name in pending.missing() if name in self._members)
        self._suspects.intersection_update(self._members)
        ended = Assemble(pending=pending, at=now, earlier=self._resolved, tickets=self._tickets.pop(pending.id))
        if pending.weight >= self._apart_min:
            return [*effects, ended]
        assembled = ended.assembled()
        self.assembled(assembled, now)
        return [*effects, Finish(assembled=assembled, tickets=ended.tickets)]

    def assembled(self, assembled: Assembled, now: float) -> None:
        """A snapshot that had ended is assembled: the next one is by what is known of it."""
        self._resolved = assembled.resolved
        self._settled.update(assembled.settled)
        if assembled.snapshot.ref.id is not None:
            self._log.record(now, f"ends {assembled.outcome.value}", assembled.snapshot.ref.id)

    def settled(self, settled: Mapping[ProcessId, tuple[CallNumber, ...]]) -> None:
        """A snapshot that was assembled elsewhere shows that these calls in doubt were answered."""
        self._settled.update(settled)

    def story(self, snapshot: SnapshotId) -> list[str]:
        """The log of a snapshot: see :class:`~detector.core.protocol.story.SnapshotLog`."""
        return self._log.story(snapshot)
