"""The driver: brings the initiator what happened and the time, and does what it answers. All on the event loop.

Agents come through :mod:`detector.service.grpc_api.agent_service`, questions through
:mod:`detector.service.grpc_api.detector_service`; verdicts go out to those who ask and watch, to the incidents, the metrics and
the archive.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, assert_never

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Assemble, Begin, Effect, Finish, Initiator, Refuse, SoFar
from detector.core.times import duration, write_time
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.ops.patience import Patience
from detector.service.detection.assembling import APART_MIN, Assembling
from detector.service.detection.current_verdicts import CurrentVerdicts
from detector.service.detection.evaluator import Evaluator
from detector.service.detection.incident.incidents import Incident, Incidents
from detector.service.detection.membership.colour_budget import ColourBudget
from detector.service.detection.membership.coverage import Membership
from detector.service.detection.membership.members import Member, MemberRecord, MemberState, Roster
from detector.service.detection.pending_asks import PendingAsks
from detector.service.detection.remote_assembly import Looks, Put, RemoteAssembly
from detector.service.detection.snapshot_verdicts import SnapshotVerdicts
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
SO_FAR_SECONDS = 0.5
"""How long a question waits for the reports of all before it may be answered by those that are there."""
KNOWN_REQUEST_SECONDS_MIN = 10.0
"""How often a process gets a snapshot for waits that go on, once an open incident shows it; new waits are not held back."""


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
        """``snapshot_store`` says which snapshot id is the first that was never given; ``put``: see ``RemoteAssembly``."""
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
            apart_min=APART_MIN if put is None else 1,
            so_far_seconds=SO_FAR_SECONDS if put is None else math.inf,
        )
        self._colours = ColourBudget(clock.now())
        self._patience = Patience()
        self.unread: Callable[[], bool] = lambda: False
        """Whether markers wait to be written, or reports to be read: nobody is late meanwhile."""
        self._rounds, self._first_rounds = (
            Rounds(roster=self.roster, clock=clock, settings=settings, metrics=metrics, patience=self._patience)
            for _ in range(2)
        )
        self.remote_assembly = put and RemoteAssembly(
            put=put, roster=self.roster, predicates=evaluator.names, settings=settings, clock=clock, log=log
        )
        self._looks = Looks((self._rounds, self._first_rounds), self.remote_assembly)
        self._verdicts = SnapshotVerdicts(
            settings=settings,
            clock=clock,
            roster=self.roster,
            membership=self._membership,
            rounds=self._rounds,
            first_rounds=self._first_rounds,
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
        self._under_way: set[SnapshotId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._arming = False
        self._judging: set[asyncio.Task[None]] = set()
        metrics.count_members_by(self._count_members, self._count_unexplained)
        self._restore(snapshot_store.members)

    # -- agents --------------------------------------------------------------------------------------------------------

    def joined(self, member: Member) -> None:
        """An agent said hello (or spoke again after its lease ran out). Raises what :meth:`Roster.admit` raises."""
        self._check_colour(member.colour)
        if self.roster.get(member.name) is None and (excess := self.roster.in_excess()) is not None:
            self._leave(excess, "it has been lost the longest, and there are too many members (--members-max)")
        before = self.roster.admit(member)
        if before is not None and before is not member and before.stream is not None:
            before.stream.replaced(f"another connection of {member.name} has replaced this one")
        if before is not None and before.process == member.process and before.lost_at is None:
            self._initiator.advance(member.colour)
        else:
            self._looks.unable(member.name, f"{member.name} was restarted")
            self._join(member, before)
        if self._under_way and member.stream is not None:
            newest = max(self._under_way)
            if member.colour < newest:
                member.stream.send_marker(newest)

    def _restore(self, records: Sequence[MemberRecord]) -> None:
        """The members of before a restart are lost until they are back; of the others it is known that they had left."""
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
        member.lost_at = None
        self._membership.joined(member)
        self._step(lambda now: self._initiator.joined(member.process, member.colour, now))
        back = before is not None and before.process == member.process
        self._log.info(
            "member back" if back else "member joined", process=member.name, service=member.process.service, agent=member.agent
        )
        self._snapshot_store.member(member.name, member.record())

    def reported(self, member: Member, report: Report) -> None:
        """A report came."""
        self._check_colour(report.snapshot)
        self.heard(member)
        member.colour = max(member.colour, report.snapshot)
        member.report = report
        self._step(lambda now: self._initiator.reported(report, now))

    def refuses(self, member: Member, after: SnapshotId, snapshot: SnapshotId) -> bool:
        """Whether a report for these snapshots would be refused, before it is decoded; then it is counted."""
        refusal = self._initiator.refusal(member.process, after, snapshot)
        if refusal is not None:
            self._check_colour(snapshot)
            self.heard(member)
            member.colour = max(member.colour, snapshot)
            self._initiator.has_cut(member.name, snapshot, self._clock.now())
            self._metrics.report_refused(refusal.value.replace(" ", "_"))
        return refusal is not None

    def looked(self, member: Member, look: Look) -> None:
        """An agent answers the verification round. One that has said goodbye is no member again for that."""
        if self.roster.is_member(member):
            member.heard_at = self._clock.now()
            self._looks.looked(member.process, look)

    def leased(self, member: Member, colour: SnapshotId, reports_dropped: int, stamps_refused: int) -> None:
        """An agent says that it lives."""
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
        """A process requests a snapshot. That the waits of an open incident go on is news only now and then.

        ``covered_seconds``: a snapshot that has begun within this time shows what is wished for.
        """
        self.heard(member)
        if reason.startswith(STILL_BLOCKED) and self.incidents.shows(member.name):
            now = self._clock.now()
            if now < self._known_request_at + KNOWN_REQUEST_SECONDS_MIN:
                return
            self._known_request_at = now
        self._step(lambda now: self._initiator.requested(member.name, now, covered_seconds))

    def said_goodbye(self, member: Member) -> None:
        """A process ends in good order."""
        self._leave(member, "it said goodbye")

    def broke(self, member: Member) -> None:
        """A stream broke: its process is missing until it is back, and lost once its lease ends."""
        member.stream = None
        if self.roster.is_member(member):
            self._looks.unable(member.name, f"the stream of {member.name} broke")
            self._log.info("stream broke", process=member.name)

    def expire(self, stalled_seconds: float = 0.0) -> None:
        """Members whose lease has run out are lost, and forgotten in the end; called now and then.

        ``stalled_seconds``: how long the event loop stood still, unable to receive anything.
        """
        self.roster.shift(stalled_seconds)
        if not self._under_way:
            self.roster.shift(self._clock.catch_up())
        now = self._clock.now()
        for member in self.roster.lapsed(now):
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
        self._membership.left()
        self._log.info("member left", process=member.name, why=why)
        self._looks.unable(member.name, f"{member.name} has left")
        self._step(lambda now: self._initiator.left(member.name, now))
        self.incidents.over(member.process, why, self._clock.now())
        self._snapshot_store.member(member.name, None)

    def heard(self, member: Member) -> None:
        """A member lives."""
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

    def _count_unexplained(self) -> int:
        return sum(one.unexplained or 0 for one in self.roster.all() if self.state_of(one) is MemberState.LIVE)

    def service_of(self, process: ProcessName) -> str | None:
        """The service of a member; None when there is none of that name."""
        member = self.roster.get(process)
        return None if member is None else member.process.service

    def lost_of(self, incident: Incident) -> tuple[ProcessName, ...]:
        """The lost processes of an open incident's core: they neither confirm nor end it."""
        if not incident.open:
            return ()
        found = {name: self.roster.get(name) for name, _ in incident.runs()}
        return tuple(sorted(name for name, member in found.items() if member is not None and member.lost_at is not None))

    def state_of(self, member: Member) -> MemberState:
        """LIVE: it can be reached and reported to the newest snapshot."""
        if member.lost_at is not None:
            return MemberState.LOST
        return MemberState.LIVE if member.live and member.name not in self._assembling.missed else MemberState.MISSING

    # -- effects -------------------------------------------------------------------------------------------------------

    def _step(self, happening: Callable[[float], list[Effect]]) -> None:
        """Tell the initiator what happened now, and do what it answers."""
        begun = self._clock.now()
        try:
            effects = happening(begun)
        except Exception as error:  # noqa: BLE001 - one snapshot that cannot be assembled must not end the service
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
                        self._assembling.take(assembled)
                        self._judge(self._assembling.judge_small(assembled, tickets))
                case Assemble():
                    self._ended(effect.pending.id)
                    self._judge(self._assembling.judge(effect))
                case SoFar():
                    self._assembling.judge_first(effect)
                case Refuse(reason=reason):
                    self._metrics.report_refused(reason.value.replace(" ", "_"))
                case _:
                    assert_never(effect)
        self._arm(begun)

    def _begin(self, begin: Begin) -> None:
        self._snapshot_store.reserve(begin.snapshot)
        self._under_way.add(begin.snapshot)
        for name in begin.members:
            member = self.roster.get(name)
            if member is not None and member.stream is not None:
                member.stream.send_marker(begin.snapshot, begin.settled.get(name, ()))

    def _ended(self, snapshot: SnapshotId | None) -> None:
        if snapshot is not None:
            self._under_way.discard(snapshot)

    def _judge(self, judging: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(judging)
        self._judging.add(task)
        task.add_done_callback(self._was_judged)
        self._initiator.judging()
        self._initiator.paused = len(self._judging) >= self._settings.pending_snapshots_max

    def _shown(self, assembled: Assembled) -> None:
        """What came of a snapshot that was assembled elsewhere."""
        self._assembling.shown(assembled)

    def _was_judged(self, task: asyncio.Task[None]) -> None:
        """Questions that arrived meanwhile share one snapshot: no more are begun than can be evaluated."""
        self._judging.discard(task)
        if not self._judging:
            self._initiator.judged(self._clock.now())
        if self._initiator.paused:
            self._initiator.paused = False
            self._step(self._initiator.ticked)
        else:
            self._arm(self._clock.now())

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, begun: float) -> None:
        """Set the timer again, at most once in a turn of the event loop. ``begun``: when the current work started."""
        if not self._arming:
            self._arming = True
            asyncio.get_running_loop().call_soon(self._set_timer, begun)

    def _set_timer(self, begun: float) -> None:
        self._arming = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        self._patience.held(now - begun, now)
        at = min(self._patience.due(self._initiator.due(now)), self._initiator.so_far_due())
        if at < math.inf:
            delay = max(_TICK_SECONDS_MIN, at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, at)

    def _tick(self, at: float) -> None:
        """Time has passed: who has not reported is late, unless the loop was held up."""
        now = self._clock.now()
        self._patience.held(now - at, now)
        if self.unread():
            self._patience.unread(now)
        if now >= self._patience.due(at):
            self._step(self._initiator.ticked)
        self._step(self._initiator.so_far)

    async def close(self) -> None:
        """Begin nothing more, and let the verdicts in progress be given."""
        if self._timer is not None:
            self._timer.cancel()
        self._arming = True
        self._looks.close()
        if self._judging:
            await asyncio.wait(self._judging, timeout=0.5)
        self._assembling.close()
        self._rounds.stop()
        self._first_rounds.stop()
