"""The initiator: decides when a snapshot begins, its id, and when to stop waiting for reports. The time is an argument.

Rules:

1. Ids only rise; a process whose colour is ahead advances them.
2. A snapshot begins for a question, for a process that requests one (rate-limited, and not if a recent snapshot already shows
   the same), and once a period; a periodic one not while another is in progress or being evaluated, nor right after one that
   took long. At most ``pending_snapshots_max`` are in progress; later requests wait until one has ended. The last slot is
   reserved for questions, so that processes that keep requesting snapshots cannot delay them.
3. It ends when every member has reported. Members that missed the last one get ``suspect_seconds``, the others
   ``give_up_seconds``, or somewhat longer while many are still reporting, with a short extra wait for the last few; then it is
   incomplete. A late report clears a member only if it is for the newest snapshot, or within ``give_up_seconds``.
4. A question is answered from a snapshot that began after it.
5. While many processes join at once (the detector restarts, a rollout), only questions begin snapshots, for a bounded time:
   half of a fleet's reports are worth little, and reading them keeps the other half waiting.
6. A crowd of questions shares snapshots: while many wait at once, snapshots for questions are kept some time apart. A snapshot
   for every few questions would take up the time needed to receive the others.
7. A question does not wait for members whose reports do not matter to it: if a snapshot takes long, or a few reports are far
   larger than the others, the reports so far are evaluated meanwhile. Only a TRUE answers a question then. A partial evaluation
   resolves all reports anew, since other members are missing; so it begins later in a larger fleet, and the next one begins
   only after it has ended. A partly evaluated snapshot that keeps a question from starting its own ends at its deadline, even
   if there are unread reports.

:class:`~detector.core.protocol.pace.Pace` keeps the rates of rules 2, 5 and 6.
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
"""Number of snapshots whose start time is kept."""
COMING_SECONDS = 0.5
"""Rule 3: while many members are awaited, more reports are expected until this long after the last one."""
COMING_GIVE_UPS_MAX = 5
"""Rule 3: a snapshot takes at most this many times ``give_up_seconds``."""
PARTIAL_SECONDS_PER_MEMBER = 0.001
"""Rule 7: upper bound for the time of a partial evaluation, which is also how long it waits before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Send a marker for ``snapshot`` to each of ``members``, with its calls in doubt that are now ``settled``."""

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
    """A large snapshot has ended ``at`` this time: assemble it (anywhere), then call :meth:`Initiator.assembled`."""

    pending: PendingSnapshot
    at: float
    earlier: Resolved | None
    tickets: tuple[int, ...] = ()

    def assembled(self) -> Assembled:
        """Assemble the snapshot."""
        return self.pending.assembled(self.at, self.earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatePartial:
    """Evaluate the reports of an unfinished snapshot (rule 7); a TRUE answers ``tickets``."""

    part: PendingSnapshot
    at: float
    tickets: tuple[int, ...]

    def assembled(self, earlier: Resolved | None) -> Assembled:
        """Assemble the partial snapshot. ``earlier``: the resolved reports of the previous partial one."""
        return self.part.assembled(self.at, earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A report was refused."""

    process: ProcessName
    reason: Refusal


Effect = Begin | Finish | Assemble | EvaluatePartial | Refuse


class Initiator:
    """Begins and ends snapshots. Each method that reports an event returns its effects, in order."""

    def __init__(
        self,
        timing: Timing | None = None,
        *,
        first: SnapshotId = SnapshotId(1),
        offload_weight_min: float = math.inf,
        partial_seconds: float = math.inf,
    ) -> None:
        """``first``: the first id to assign, above every id ever assigned.

        ``offload_weight_min``: a snapshot of this :attr:`~PendingSnapshot.weight` ends as :class:`Assemble`, to be assembled
        elsewhere. ``partial_seconds``: how long a snapshot takes before rule 7 applies.
        """
        self.timing = timing = timing or Timing()
        self._pace = Pace(timing)
        self._offload_weight_min = offload_weight_min
        self._partial_seconds = partial_seconds
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
        self._slow: set[ProcessName] = set()
        self._log = SnapshotLog()
        self._lost: set[ProcessName] = set()
        self.paused = False
        """While true, no snapshot begins, because ended ones still wait to be evaluated."""
        self._evaluating = False
        self._rest_until = -math.inf
        self._settled: dict[ProcessId, tuple[CallNumber, ...]] = {}
        self._resolved: Resolved | None = None

    # -- members -------------------------------------------------------------------------------------------------------

    def joined(self, process: ProcessId, colour: SnapshotId, now: float) -> list[Effect]:
        """A process is a member from the next snapshot on and replaces its other incarnation."""
        effects = self.left(process.instance, now)
        self._pace.joined(now)
        self._members[process.instance] = process
        self._lost.discard(process.instance)
        for pending in self._pending.values():
            pending.await_again(process)
        self.advance(colour)
        return effects

    def left(self, process: ProcessName, now: float) -> list[Effect]:
        """A process is no longer a member; pending snapshots still count it, but do not wait for it."""
        self._lost.discard(process)
        if self._members.pop(process, None) is None:
            return []
        for pending in self._pending.values():
            pending.stop_awaiting(process)
        return self._end_due(now)

    def lost(self, process: ProcessName, now: float) -> list[Effect]:
        """A member cannot be reached: snapshots still count it, but do not wait for it until it joins again."""
        self._lost.add(process)
        for pending in self._pending.values():
            pending.stop_awaiting(process)
            self._log.record(now, f"{process} is lost", pending.id)
        return self._end_due(now)

    def advance(self, colour: SnapshotId) -> None:
        """A process has cut for ``colour`` (rule 1)."""
        self.next_id = SnapshotId(max(self.next_id, colour + 1))

    @property
    def members(self) -> tuple[ProcessName, ...]:
        """The names of the members, sorted."""
        return tuple(sorted(self._members))

    # -- triggers (rule 2) ---------------------------------------------------------------------------------------------

    def asked(self, ticket: int, now: float, waiting: int = 1) -> list[Effect]:
        """A question has arrived, one of ``waiting`` now; the ``Finish`` that answers it carries ``ticket``."""
        self._pace.asked(waiting, now)
        self._asking.append(ticket)
        return self._begin_wanted(now)

    def requested(self, process: ProcessName, now: float, covered_seconds: float = 0.0) -> list[Effect]:
        """A process requests a snapshot, because one of its parties has been blocked for long.

        The newest snapshot already shows that if it began within ``covered_seconds`` (rule 2).
        """
        if process in self._newest_members and now - self._newest_begun < covered_seconds:
            return []
        self._requester = process
        return self._begin_wanted(now)

    def ticked(self, now: float) -> list[Effect]:
        """Time has passed."""
        return self._end_due(now, late=True) + self._begin_wanted(now)

    def due(self, now: float) -> float:
        """The next time at which :meth:`ticked` has something to do, in seconds; infinity if there is none."""
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
        """A report has arrived. It serves every pending snapshot in (after, snapshot] (rule 2 of the recorder)."""
        name = report.process.instance
        self.cut_made(name, report.snapshot, now)
        served = [pending for pending in self._pending.values() if report.after < pending.id <= report.snapshot]
        if not served:
            return [Refuse(process=name, reason=Refusal.LATE)]
        effects: list[Effect] = []
        for pending in served:
            many = len(pending.awaited) >= self.timing.rush_members and now > pending.begun + self.timing.give_up_seconds
            refusal = pending.offer(report)
            if refusal is not None:
                effects.append(Refuse(process=name, reason=refusal))
            else:
                pending.reported_at = now
                pending.many_reported_at = now if many else pending.many_reported_at
            outcome = "is accepted" if refusal is None else f"is refused ({refusal.value})"
            cut = f"next call {report.next_number}, cut for ({report.after}, {report.snapshot}]"
            self._log.record(now, f"the report of {name} {outcome}: {cut}", pending.id)
        return effects + self._end_due(now) + self._begin_wanted(now)

    def refusal(self, process: ProcessId, after: SnapshotId, snapshot: SnapshotId) -> Refusal | None:
        """Why a report of ``process`` for the snapshots in (after, snapshot] would be refused; None if it would be accepted."""
        refusals = [pending.refusal(process) for pending in self._pending.values() if after < pending.id <= snapshot]
        return None if None in refusals else next(iter(refusals), Refusal.LATE)

    def cut_made(self, process: ProcessName, snapshot: SnapshotId, now: float) -> None:
        """A process has cut for ``snapshot``, though its report may be late.

        From now on it is waited for like the others (rule 3), if this is the newest snapshot or began within
        ``give_up_seconds``.
        """
        if snapshot >= self.next_id - 1 or now <= self._begun.get(snapshot, -math.inf) + self.timing.give_up_seconds:
            self._slow.discard(process)
        self.advance(snapshot)

    # -- partial evaluation (rule 7) -----------------------------------------------------------------------------------

    def partial(self, now: float) -> list[Effect]:
        """Time has passed: begin the partial evaluations that are due, and end snapshots that block a question."""
        due = [one for one in self._pending.values() if now >= self._partial_due(one)]
        effects: list[Effect] = [self._evaluate_partial(one, now) for one in due]
        over = [one for one in self._blocking_questions() if now >= self._deadline(one)]
        for one in over:
            effects += self._finish(one, now)
        return effects + (self._begin_wanted(now) if over else [])

    def partial_due(self) -> float:
        """The next time at which :meth:`partial` has something to do; infinity if there is none."""
        times = [*map(self._partial_due, self._pending.values()), *map(self._deadline, self._blocking_questions())]
        return min(times, default=math.inf)

    def _blocking_questions(self) -> list[PendingSnapshot]:
        """Partly evaluated snapshots that keep a question from starting its own."""
        full = self._asking and not self.paused and not self._has_room(question=True)
        return [one for one in self._pending.values() if full and one.partly_evaluated_at > -math.inf]

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _begin_wanted(self, now: float) -> list[Effect]:
        """Rule 2: begin a snapshot if one is wanted and there is room. It serves all pending requests."""
        by = self._trigger(now)
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
            self._pending[snapshot].stop_awaiting(name)
        self._tickets[snapshot] = tuple(self._asking)
        self._pace.begun(now, for_questions=bool(self._asking))
        self._asking.clear()
        self._requester = None
        self._periodic_at = now
        self._log.record(now, f"begins for {by}: markers to {', '.join(self.members) or 'no member'}", snapshot)
        begin = Begin(snapshot=snapshot, members=self.members, settled=self._settled_members())
        return [begin, *self._end_due(now)]

    def _settled_members(self) -> dict[ProcessName, tuple[CallNumber, ...]]:
        """By member, its calls in doubt that were answered. Sent once, since a doubt that persists shows up again."""
        settled = {
            process.instance: numbers
            for process, numbers in self._settled.items()
            if self._members.get(process.instance) == process
        }
        self._settled.clear()
        return settled

    def _has_room(self, *, question: bool = False) -> bool:
        """Rule 2: whether another snapshot may begin."""
        most = self.timing.pending_snapshots_max
        return not self.paused and len(self._pending) < (most if question else max(1, most - 1))

    def _trigger(self, now: float) -> str | None:
        """Why a snapshot should begin now; None if it should not."""
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
        """Whether a periodic snapshot may begin: not while another one is unfinished, even if that takes several periods."""
        return bool(self.timing.period_seconds and self._members and not self._pending and not self._evaluating)

    def _periodic_due(self) -> float:
        return max(self._periodic_at + self.timing.period_seconds, self._rest_until, self._pace.rush_until(len(self._members)))

    def evaluating(self) -> None:
        """An ended snapshot is being evaluated."""
        self._evaluating = True

    def evaluated(self, now: float) -> None:
        """All ended snapshots are evaluated. An equally long pause follows, at most a period, to leave time for other work."""
        self._evaluating = False
        self._rest(self._periodic_at, now)

    def _rest(self, begun: float, now: float) -> None:
        self._rest_until = now + min(now - begun, self.timing.period_seconds)

    def _deadline(self, pending: PendingSnapshot) -> float:
        """Rule 3: until when this snapshot waits for its remaining reports."""
        if not pending.awaited:
            return pending.begun
        timing = self.timing
        due = pending.begun + (timing.suspect_seconds if pending.awaited <= self._slow else timing.give_up_seconds)
        coming = pending.reported_at if len(pending.awaited) >= timing.rush_members else pending.many_reported_at
        end = pending.begun + COMING_GIVE_UPS_MAX * timing.give_up_seconds
        return max(due, min(coming + COMING_SECONDS, end))

    def _end_due(self, now: float, *, late: bool = False) -> list[Effect]:
        """End every snapshot that is due (rule 3), the oldest first; with ``late``, also those past their deadline.

        Only :meth:`ticked` passes ``late``: any other event may itself have been delayed behind unread reports.
        """
        over = [one for one in self._pending.values() if not one.awaited or (late and now >= self._deadline(one))]
        return [effect for pending in over for effect in self._finish(pending, now)]

    def _partial_due(self, pending: PendingSnapshot) -> float:
        """Rule 7: when the next partial evaluation is due; infinity if there is nothing new, or one is in progress."""
        if pending.partly_evaluating or not self._tickets.get(pending.id) or pending.unevaluated <= 0:
            return math.inf
        pause = max(self._partial_seconds, PARTIAL_SECONDS_PER_MEMBER * len(pending.members))
        return max(pending.begun, pending.partly_evaluated_at) + pause

    def partly_evaluated(self, snapshot: SnapshotId, now: float) -> None:
        """A partial evaluation has ended; the snapshot may have ended meanwhile."""
        pending = self._pending.get(snapshot)
        if pending is not None:
            pending.partly_evaluating, pending.partly_evaluated_at = False, now

    def _evaluate_partial(self, pending: PendingSnapshot, now: float) -> EvaluatePartial:
        pending.partly_evaluating = True
        return EvaluatePartial(part=pending.partial(now), at=now, tickets=self._tickets.get(pending.id, ()))

    def _finish(self, pending: PendingSnapshot, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._partial_seconds < math.inf and pending.heavy and pending.unevaluated:
            effects.append(self._evaluate_partial(pending, now))
        del self._pending[pending.id]
        if now > pending.begun + self.timing.period_seconds:
            self._rest(pending.begun, now)
        self._slow.update(name for name in pending.missing() if name in self._members)
        self._slow.intersection_update(self._members)
        ended = Assemble(pending=pending, at=now, earlier=self._resolved, tickets=self._tickets.pop(pending.id))
        if pending.weight >= self._offload_weight_min:
            return [*effects, ended]
        assembled = ended.assembled()
        self.assembled(assembled, now)
        return [*effects, Finish(assembled=assembled, tickets=ended.tickets)]

    def assembled(self, assembled: Assembled, now: float) -> None:
        """An ended snapshot has been assembled; the next one reuses its result."""
        self._resolved = assembled.resolved
        self._settled.update(assembled.settled)
        if assembled.snapshot.ref.id is not None:
            self._log.record(now, f"ends {assembled.outcome.value}", assembled.snapshot.ref.id)

    def settled(self, settled: Mapping[ProcessId, tuple[CallNumber, ...]]) -> None:
        """A snapshot that another process assembled shows that these calls in doubt were answered."""
        self._settled.update(settled)

    def story(self, snapshot: SnapshotId) -> list[str]:
        """The log of a snapshot; see :class:`~detector.core.protocol.story.SnapshotLog`."""
        return self._log.story(snapshot)
