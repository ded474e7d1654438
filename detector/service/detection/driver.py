"""The driver: passes events and the time to the initiator and carries out its effects, all on the event loop.

Agents connect through :mod:`detector.service.grpc_api.agent_service`, clients through
:mod:`detector.service.grpc_api.detector_service`; verdicts go to clients, incidents, metrics and the archive.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, assert_never

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Assemble, Begin, Effect, EvaluatePartial, Finish, Initiator, Refuse
from detector.core.times import duration, write_time
from detector.ops.clock import Clock
from detector.ops.deadline_extension import DeadlineExtension
from detector.ops.logs import Log
from detector.service.detection.assembling import THREAD_MEMBERS_MIN, Assembling
from detector.service.detection.current_verdicts import CurrentVerdicts
from detector.service.detection.evaluator import Evaluator
from detector.service.detection.incident.incidents import Incident, Incidents
from detector.service.detection.membership.colour_budget import ColourBudget
from detector.service.detection.membership.coverage import Membership
from detector.service.detection.membership.members import Member, MemberRecord, MemberState, NameTakenError, Roster
from detector.service.detection.pending_asks import PendingAsks
from detector.service.detection.remote_assembly import LookDispatcher, Put, RemoteAssembly
from detector.service.detection.snapshot_verdicts import Evaluated, SnapshotVerdicts
from detector.service.detection.verification_rounds import Rounds
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from detector.service.storage.archive_sink import ArchiveSink
from detector.service.storage.snapshot_store import SnapshotStore
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look
from stilltrue.runtime.membership.triggers import STILL_BLOCKED

_TICK_SECONDS_MIN = 0.001
PARTIAL_SECONDS = 0.5
"""How long a question waits for all reports before a partial snapshot may answer it."""
KNOWN_REQUEST_SECONDS_MIN = 10.0
"""How often processes in open incidents get a snapshot for continuing waits; new waits are not limited."""


class Driver:
    """Owns the initiator and the members. Every method is called on the event loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        evaluator: Evaluator,
        incidents: Incidents,
        snapshot_store: SnapshotStore,
        metrics: Metrics,
        log: Log,
        archive_sink: ArchiveSink | None = None,
        put: Put | None = None,
    ) -> None:
        """``snapshot_store`` has the first unused snapshot id; ``put``: see ``RemoteAssembly``."""
        self.roster = Roster(
            lease_seconds=settings.lease_seconds,
            members_max=settings.members_max,
            forget_seconds=settings.forget_seconds,
            reports_bytes_max=settings.reports_bytes_max,
            reports_entries_max=settings.reports_entries_max,
        )
        self._membership = Membership(self.roster, settings)
        self.expected = self._membership.expected
        self.current = CurrentVerdicts(watchers_max=settings.watchers_max)
        self.incidents = incidents
        self.pending_asks = PendingAsks(settings=settings, clock=clock, begin=self._asked)
        self._settings = settings
        self._clock = clock
        self._snapshot_store = snapshot_store
        self._metrics = metrics
        self._log = log
        self._initiator = Initiator(
            settings.timing,
            first=snapshot_store.first_id,
            offload_weight_min=THREAD_MEMBERS_MIN if put is None else 1,
            partial_seconds=PARTIAL_SECONDS if put is None else math.inf,
        )
        self._colours = ColourBudget(clock.now())
        self._extension = DeadlineExtension()
        self.unread: Callable[[], bool] = lambda: False
        """Whether markers are unwritten or reports unread; members do not count as late meanwhile."""
        self._rounds, self._partial_rounds = (
            Rounds(roster=self.roster, clock=clock, settings=settings, metrics=metrics, extension=self._extension)
            for _ in range(2)
        )
        self.remote_assembly = put and RemoteAssembly(
            put=put, roster=self.roster, predicates=evaluator.names, settings=settings, clock=clock, log=log
        )
        self._looks = LookDispatcher((self._rounds, self._partial_rounds), self.remote_assembly)
        self._verdicts = SnapshotVerdicts(
            settings=settings,
            clock=clock,
            roster=self.roster,
            membership=self._membership,
            rounds=self._rounds,
            partial_rounds=self._partial_rounds,
            evaluator=evaluator,
            incidents=incidents,
            current=self.current,
            pending_asks=self.pending_asks,
            snapshot_store=snapshot_store,
            archive_sink=archive_sink,
            metrics=metrics,
            log=log,
            remote_assembly=self.remote_assembly,
            shown=self._shown,
        )
        self._assembling = Assembling(
            initiator=self._initiator, verdicts=self._verdicts, clock=clock, metrics=metrics, log=log, remote=put is not None
        )
        self._known_request_at = -math.inf
        self._in_progress: set[SnapshotId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._arming = False
        self._evaluations: set[asyncio.Task[None]] = set()
        metrics.set_member_counts(self._count_members, self._count_unexplained)
        self._restore(snapshot_store.members)

    # -- agents --------------------------------------------------------------------------------------------------------

    def joined(self, member: Member) -> None:
        """Admit a member that said hello, or sent a message after its lease expired. Raises as :meth:`Roster.admit`."""
        self._check_colour(member.colour)
        if self.roster.get(member.name) is None and (evicted := self.roster.to_evict()) is not None:
            self._leave(evicted, "it was lost the longest, and there are too many members (--members-max)")
        try:
            before = self.roster.admit(member)
        except NameTakenError:
            self._membership.refused(member, self._clock.now())
            raise
        if before is not None and before is not member and before.stream is not None:
            before.stream.replaced(f"another connection of {member.name} has replaced this one")
        if before is not None and before.process == member.process and before.lost_at is None:
            self._initiator.advance(member.colour)
        else:
            self._looks.unable(member.name, f"{member.name} was restarted")
            self._join(member, before)
        if self._in_progress and member.stream is not None:
            newest = max(self._in_progress)
            if member.colour < newest:
                member.stream.send_marker(newest)

    def _restore(self, records: Sequence[MemberRecord]) -> None:
        """Restore the members from before a restart, lost until they are back; others in open incidents had left."""
        now = self._clock.now()
        for member in (record.restored(now) for record in records):
            self.roster.admit(member)
            self._initiator.joined(member.process, member.colour, now)
            self._initiator.lost(member.name, now)
        self._membership.restored()
        known = {(member.name, member.process.incarnation) for member in self.roster.all()}
        for name, incarnation in {run for incident in self.incidents.open_ones() for run in incident.runs()} - known:
            gone = ProcessId(service="", instance=name, incarnation=incarnation)
            self.incidents.over(gone, "it had left before the detector's restart", now)

    def _join(self, member: Member, before: Member | None) -> None:
        if before is not None and before.process != member.process:
            self.incidents.over(before.process, "a later incarnation has replaced it", self._clock.now())
            self._membership.replaced(before)
        member.lost_at = None
        self._membership.joined(member)
        self._step(lambda now: self._initiator.joined(member.process, member.colour, now))
        back = before is not None and before.process == member.process
        self._log.info(
            "member back" if back else "member joined", process=member.name, service=member.process.service, agent=member.agent
        )
        self._snapshot_store.member(member.name, member.record())

    def reported(self, member: Member, report: Report) -> None:
        """Take a report."""
        self._check_colour(report.snapshot)
        self.heard(member)
        member.colour = max(member.colour, report.snapshot)
        member.report = report
        self._membership.reported(report, self._clock.now())
        self._step(lambda now: self._initiator.reported(report, now))

    def refuses(self, member: Member, after: SnapshotId, snapshot: SnapshotId) -> bool:
        """Whether to refuse a report for these snapshots, before it is decoded; counts the refusal."""
        refusal = self._initiator.refusal(member.process, after, snapshot)
        if refusal is not None:
            self._check_colour(snapshot)
            self.heard(member)
            member.colour = max(member.colour, snapshot)
            self._initiator.cut_made(member.name, snapshot, self._clock.now())
            self._metrics.report_refused(refusal.value.replace(" ", "_"))
        return refusal is not None

    def looked(self, member: Member, look: Look) -> None:
        """Take a second look, unless the agent has said goodbye; an answer does not make it a member again."""
        if self.roster.is_member(member):
            member.heard_at = self._clock.now()
            self._looks.looked(member.process, look)

    def leased(self, member: Member, colour: SnapshotId, reports_dropped: int, stamps_refused: int) -> None:
        """Renew a member's lease."""
        self._check_colour(colour)
        self.heard(member)
        member.colour = max(member.colour, colour)
        self._metrics.agent_dropped(max(0, reports_dropped - member.reports_dropped))
        member.reports_dropped = reports_dropped
        member.stamps_refused = stamps_refused
        self._initiator.advance(colour)

    @property
    def next_id(self) -> SnapshotId:
        """The number of the next snapshot to begin."""
        return self._initiator.next_id

    def requested(self, member: Member, reason: str = "", covered_seconds: float = 0.0) -> None:
        """Take a process's request for a snapshot. Requests for continuing waits of open incidents are rate-limited.

        ``covered_seconds``: a snapshot that began within this time satisfies the request.
        """
        self.heard(member)
        if reason.startswith(STILL_BLOCKED) and self.incidents.shows(member.name):
            now = self._clock.now()
            if now < self._known_request_at + KNOWN_REQUEST_SECONDS_MIN:
                return
            self._known_request_at = now
        self._step(lambda now: self._initiator.requested(member.name, now, covered_seconds))

    def said_goodbye(self, member: Member) -> None:
        """Remove a member that ends cleanly."""
        self._leave(member, "it said goodbye")

    def broke(self, member: Member) -> None:
        """Record a broken stream: the process is missing until it is back, and lost when its lease expires."""
        member.stream = None
        if self.roster.is_member(member):
            self._looks.unable(member.name, f"the stream of {member.name} broke")
            self._log.info("stream broke", process=member.name)
            self._snapshot_store.member(member.name, member.record())  # when it was last seen

    def expire_leases(self, stalled_seconds: float = 0.0) -> None:
        """Mark members with expired leases as lost, and forget those lost for too long. Called periodically.

        ``stalled_seconds``: how long the event loop was blocked and could not receive anything.
        """
        self.roster.shift(stalled_seconds)
        if not self._in_progress:
            self.roster.shift(self._clock.catch_up())
        now = self._clock.now()
        for member in self.roster.with_expired_leases(now):
            self._lose(member, now)
        for member in self.roster.to_forget(now):
            self._leave(member, f"lost for {duration(self._settings.forget_seconds)}, it is forgotten")

    def _lose(self, member: Member, now: float) -> None:
        member.lost_at = now
        self._log.warning("member lost", process=member.name, last_seen=write_time(member.heard_at))
        self._step(lambda now: self._initiator.lost(member.name, now))
        self._snapshot_store.member(member.name, member.record())

    def _leave(self, member: Member, why: str) -> None:
        if not self.roster.remove(member):
            return
        self._membership.left(member)
        self._log.info("member left", process=member.name, why=why)
        self._looks.unable(member.name, f"{member.name} has left")
        self._step(lambda now: self._initiator.left(member.name, now))
        self.incidents.over(member.process, why, self._clock.now())
        self._snapshot_store.member(member.name, None)

    def forget(self, member: Member, who: str) -> None:
        """End the membership of a lost member before its time; ``who`` knows that its process has ended."""
        self._leave(member, f"it was lost, and {who} had it forgotten")

    def heard(self, member: Member) -> None:
        """Record a sign of life from a member."""
        member.heard_at = self._clock.now()
        if member.lost_at is not None and self.roster.is_member(member):
            self._join(member, member)
        elif self.roster.get(member.name) is None:
            self.joined(member)

    def _check_colour(self, colour: int) -> None:
        self._colours.spend(colour, self._initiator.next_id - 1, self._clock.now())

    def _asked(self, number: int) -> None:
        self._step(lambda now: self._initiator.asked(number, now, waiting=len(self.pending_asks)))

    def _count_members(self) -> Counter[MemberState]:
        return Counter(map(self.state_of, self.roster.all()))

    def _count_unexplained(self) -> tuple[int, int]:
        live = [one for one in self.roster.all() if self.state_of(one) is MemberState.LIVE]
        return sum(one.unexplained or 0 for one in live), sum(one.unexplained_calls for one in live)

    def service_of(self, process: ProcessName) -> str | None:
        """The service of a member; None if there is no such member."""
        member = self.roster.get(process)
        return None if member is None else member.process.service

    def lost_of(self, incident: Incident) -> tuple[ProcessName, ...]:
        """The lost processes of an open incident's core, which can neither confirm nor end it."""
        if not incident.open:
            return ()
        found = {name: self.roster.get(name) for name, _ in incident.runs()}
        return tuple(sorted(name for name, member in found.items() if member is not None and member.lost_at is not None))

    def state_of(self, member: Member) -> MemberState:
        """LIVE if the member can be reached and is in the newest snapshot."""
        if member.lost_at is not None:
            return MemberState.LOST
        return MemberState.LIVE if member.live and member.name not in self._assembling.missed else MemberState.MISSING

    # -- effects -------------------------------------------------------------------------------------------------------

    def _step(self, event: Callable[[float], list[Effect]]) -> None:
        """Pass an event to the initiator and carry out its effects."""
        begun = self._clock.now()
        try:
            effects = event(begun)
        except Exception as error:  # noqa: BLE001 - a failed assembly must not stop the service
            self._log.failure("snapshot failed", error)
            effects = []
        for effect in effects:
            match effect:
                case Begin():
                    self._begin(effect)
                case Finish(assembled=assembled, tickets=tickets):
                    self._ended(assembled.snapshot.ref.id)
                    if not assembled.snapshot.ref.members:
                        self.pending_asks.no_members(tickets)
                    else:
                        self._assembling.record(assembled)
                        self._start_evaluation(self._assembling.evaluate_assembled(assembled, tickets))
                case Assemble():
                    self._ended(effect.pending.id)
                    self._start_evaluation(self._assembling.evaluate(effect))
                case EvaluatePartial():
                    self._assembling.evaluate_partial(effect).add_done_callback(
                        partial(self._partial_evaluation_done, effect.part.id)
                    )
                case Refuse(reason=reason):
                    self._metrics.report_refused(reason.value.replace(" ", "_"))
                case _:
                    assert_never(effect)
        self._arm(begun)

    def _begin(self, begin: Begin) -> None:
        self._snapshot_store.reserve(begin.snapshot)
        self._in_progress.add(begin.snapshot)
        for name in begin.members:
            member = self.roster.get(name)
            if member is not None and member.stream is not None:
                member.stream.send_marker(begin.snapshot, begin.settled.get(name, ()))

    def _ended(self, snapshot: SnapshotId | None) -> None:
        if snapshot is not None:
            self._in_progress.discard(snapshot)

    def _start_evaluation(self, evaluation: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(evaluation)
        self._evaluations.add(task)
        task.add_done_callback(self._evaluation_done)
        self._initiator.evaluating()
        self._initiator.paused = len(self._evaluations) >= self._settings.pending_snapshots_max

    def _partial_evaluation_done(self, snapshot: SnapshotId, _: asyncio.Task[Evaluated | None]) -> None:
        now = self._clock.now()
        self._initiator.partly_evaluated(snapshot, now)
        self._arm(now)

    def _shown(self, assembled: Assembled) -> None:
        """Record the outcome of a snapshot that another process assembled."""
        self._assembling.record_remote(assembled)

    def _evaluation_done(self, task: asyncio.Task[None]) -> None:
        """Resume snapshots; they pause while too many are evaluated, so that questions that arrive meanwhile share one."""
        self._evaluations.discard(task)
        if not self._evaluations:
            self._initiator.evaluated(self._clock.now())
        if self._initiator.paused:
            self._initiator.paused = False
            self._step(self._initiator.ticked)
        else:
            self._arm(self._clock.now())

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, begun: float) -> None:
        """Reset the timer, at most once per turn of the event loop. ``begun``: when the current work started."""
        if not self._arming:
            self._arming = True
            asyncio.get_running_loop().call_soon(self._set_timer, begun)

    def _set_timer(self, begun: float) -> None:
        self._arming = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        self._extension.held(now - begun, now)
        at = min(self._extension.due(self._initiator.due(now)), self._initiator.partial_due())
        if at < math.inf:
            delay = max(_TICK_SECONDS_MIN, at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, at)

    def _tick(self, at: float) -> None:
        """Let the initiator act on the time: members that have not reported are late, unless the loop was blocked."""
        now = self._clock.now()
        self._extension.held(now - at, now)
        if self.unread():
            self._extension.unread(now)
        if now >= self._extension.due(at):
            self._step(self._initiator.ticked)
        self._step(self._initiator.partial)

    async def close(self) -> None:
        """Stop starting snapshots, and let evaluations in progress finish."""
        if self._timer is not None:
            self._timer.cancel()
        self._arming = True
        self._looks.close()
        if self._evaluations:
            await asyncio.wait(self._evaluations, timeout=0.5)
        self._assembling.close()
        self._rounds.stop()
        self._partial_rounds.stop()
