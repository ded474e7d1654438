"""From a finished snapshot to its verdicts: verified, judged by every predicate in every scope, published and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from detector.assembly.results import completed
from detector.core.answer import nobody_reported, undetermined
from detector.core.look.verification import Interim
from detector.core.membership_doubt import MembershipDoubt
from detector.core.protocol.assembler import Assembled
from detector.core.scope import views_of
from detector.core.snapshot import Snapshot
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.current_verdicts import CurrentVerdicts, Key, key_of
from detector.service.detection.evaluator import Evaluator
from detector.service.detection.incident.incidents import Incidents
from detector.service.detection.membership.coverage import Membership
from detector.service.detection.membership.members import Roster
from detector.service.detection.pending_asks import PendingAsks
from detector.service.detection.remote_assembly import NoResultError, RemoteAssembly
from detector.service.detection.verification_rounds import Rounds
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from detector.service.storage.archive_sink import ArchiveSink
from detector.service.storage.snapshot_store import SnapshotStore
from stilltrue.model import Holds, PartyName, ProcessState, SnapshotId, Verdict

ALL = "all"
"""The scope of all members."""


class Judged(NamedTuple):
    """A snapshot after its round, and what was said of it."""

    assembled: Assembled
    verdicts: tuple[Verdict, ...]


class SnapshotVerdicts:
    """Judges finished snapshots. Every method is called on the event loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        roster: Roster,
        membership: Membership,
        rounds: Rounds,
        first_rounds: Rounds,
        evaluator: Evaluator,
        incidents: Incidents,
        current: CurrentVerdicts,
        pending_asks: PendingAsks,
        snapshot_store: SnapshotStore,
        archive_sink: ArchiveSink | None,
        metrics: Metrics,
        log: Log,
        remote_assembly: RemoteAssembly | None = None,
        shown: Callable[[Assembled], None] = lambda _: None,
    ) -> None:
        """The parts that judge, and those that publish. ``first_rounds``: for what is judged before the rest.

        ``remote_assembly``: who judges instead of them; ``shown`` is called with what came of a snapshot there.
        """
        self._remote_assembly = remote_assembly
        self._shown = shown
        self._scopes = settings.scopes
        self._clock = clock
        self._roster = roster
        self._membership = membership
        self._rounds = rounds
        self._first_rounds = first_rounds
        self._evaluator = evaluator
        self._incidents = incidents
        self._current = current
        self._pending_asks = pending_asks
        self._snapshot_store = snapshot_store
        self._archive_sink = archive_sink
        self._metrics = metrics
        self._log = log
        self._newest: dict[Key, SnapshotId] = {}

    async def judge(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Have every predicate answer for every scope; each answer is published as soon as it is known. Never raises."""
        try:
            await self._judge_all(assembled, tickets)
        except Exception as error:  # noqa: BLE001 - a failure must not end in silence
            self._log.failure("verdicts not recorded", error, snapshot=assembled.snapshot.ref.id)

    async def _judge_all(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Verify first, if there is anything to verify; take a second round when a TRUE depends on idleness."""
        if self._remote_assembly is not None:
            await self._judge_remotely(self._remote_assembly, assembled, tickets)
            return
        looked_at = await self._verified(self._rounds, assembled, tickets)
        seen = _Seen(looked_at, self._rounds)
        self._snapshot_store.taken(seen.looked_at)
        views = range(1 + len(self._scopes))
        given = await asyncio.gather(
            *(self._judge_one(name, view, seen, tickets) for name in self._evaluator.names for view in views)
        )
        changed = any(news for _, news in given)
        newest = replace(seen.newest, snapshot=replace(seen.newest.snapshot, membership=tuple(seen.doubts)))
        self.keep(newest, tuple(verdict for verdict, _ in given), pinned=changed)

    async def judge_first(self, assembled: Assembled, tickets: tuple[int, ...]) -> Judged:
        """Say what is TRUE by a part of the reports, after a round of its own; nothing else is said of it."""
        looked_at = await self._verified(self._first_rounds, assembled, tickets)
        said = Judged(looked_at, await self._say_what_is_true(looked_at, tickets))
        unsure, looks = looked_at.snapshot.waits.uncoloured.any(), looked_at.snapshot.looks.values()
        if unsure and any(look.unchanged and not look.doubt for look in looks):
            self._pending_asks.again(tickets)  # rule 5 of the verifier: another round may confirm what this one saw
        return said

    def awaited(self, tickets: tuple[int, ...]) -> bool:
        """Whether one of the questions still waits for its answer."""
        return self._pending_asks.waiting(tickets)

    async def _verified(self, rounds: Rounds, assembled: Assembled, tickets: tuple[int, ...]) -> Assembled:
        """The snapshot after its round; what is TRUE whatever those that are still to answer will say is said meanwhile."""
        saying: list[asyncio.Task[tuple[Verdict, ...]]] = []

        def early(interim: Interim) -> None:
            if interim.certain:
                saying.append(asyncio.get_running_loop().create_task(self._say_what_is_true(interim.assembled, tickets)))
            else:
                self._pending_asks.again(tickets)

        looked_at = await rounds.of_waits(assembled, early)
        await asyncio.gather(*saying)  # what is said early is not said after the rest
        return looked_at

    async def _say_what_is_true(self, assembled: Assembled, tickets: tuple[int, ...]) -> tuple[Verdict, ...]:
        """Have every predicate answer for every scope, and publish what is TRUE and does not depend on who is idle."""
        self._snapshot_store.taken(assembled)
        views = self._views(assembled.snapshot)
        found = await asyncio.gather(
            *(self._say_if_true(name, view, assembled, tickets) for name in self._evaluator.names for view in views)
        )
        return tuple(verdict for verdict in found if verdict is not None)

    async def _say_if_true(self, name: str, view: Snapshot, assembled: Assembled, tickets: tuple[int, ...]) -> Verdict | None:
        verdict = await self._verdict(name, view)
        if verdict.holds is not Holds.TRUE or await self._evaluator.leans_on_idleness(name, view, verdict):
            return None
        if self._current.includes(verdict):  # those who watch know of it, and of others
            self._pending_asks.judged(tickets, verdict)
            return verdict
        return (await self._say(verdict, view, assembled, {}, tickets))[0]

    async def _judge_remotely(self, remote_assembly: RemoteAssembly, attended: Assembled, tickets: tuple[int, ...]) -> None:
        """Have another process assemble and judge; what it says is qualified and published here, as if it were ours."""
        watched = sorted({PartyName(key[0]) for incident in self._incidents.open_ones() for key in incident.keys})
        try:
            result = await remote_assembly.result(attended, watched)
        except NoResultError as error:
            self._log.warning("no result", snapshot=attended.snapshot.ref.id, reason=str(error))
            views = self._views(attended.snapshot)
            verdicts = [undetermined(name, view.ref, "overrun", str(error)) for name in self._evaluator.names for view in views]
            assembled = attended
        else:
            assembled, verdicts = completed(result, attended), list(result.verdicts)
            self._shown(assembled)
        self._snapshot_store.taken(assembled)
        by_scope = {view.ref.scope: view for view in self._views(assembled.snapshot)}
        doubts: dict[MembershipDoubt, None] = {}
        given = [
            await self._say(verdict, by_scope[verdict.snapshot.scope], assembled, doubts, tickets)
            for verdict in verdicts
            if verdict.snapshot.scope in by_scope
        ]
        newest = replace(assembled, snapshot=replace(assembled.snapshot, membership=tuple(doubts)))
        self.keep(newest, tuple(verdict for verdict, _ in given), pinned=any(news for _, news in given))

    def keep(self, assembled: Assembled, verdicts: tuple[Verdict, ...], *, pinned: bool) -> None:
        """Store and archive a finished snapshot."""
        self._snapshot_store.finished(assembled, verdicts, pinned=pinned)
        if self._archive_sink is not None and self._remote_assembly is None:
            absent = {name: self._roster.get(name) for name in assembled.snapshot.missing}
            self._archive_sink.finished(
                assembled, verdicts, {name: member.process for name, member in absent.items() if member}
            )

    def _views(self, snapshot: Snapshot) -> list[Snapshot]:
        """The snapshot, and its view in each scope; a missing process that is no longer known belongs to every scope."""
        found = {name: self._roster.get(name) for name in snapshot.missing}
        absent = {
            name: None if member is None else ProcessState(service=member.process.service, labels=member.labels)
            for name, member in found.items()
        }
        return views_of(snapshot, {scope.name: scope.labels for scope in self._scopes}, absent)

    async def _judge_one(self, name: str, view: int, seen: _Seen, tickets: tuple[int, ...]) -> tuple[Verdict, bool]:
        snapshot = seen.views(seen.looked_at.snapshot, self._views)[view]
        verdict = await self._verdict(name, snapshot)
        if await self._evaluator.leans_on_idleness(name, snapshot, verdict):
            snapshot = seen.views((await seen.idleness()).snapshot, self._views)[view]
            verdict = await self._verdict(name, snapshot)
        return await self._say(verdict, snapshot, seen.newest, seen.doubts, tickets)

    async def _say(
        self,
        verdict: Verdict,
        view: Snapshot,
        assembled: Assembled,
        noted: dict[MembershipDoubt, None],
        tickets: tuple[int, ...],
    ) -> tuple[Verdict, bool]:
        """Publish a verdict on a view, as certain as the membership allows; whether it is news. Doubts are ``noted``."""
        open_ones = self._incidents.open_ones() if view.missing else []
        doubts = self._membership.doubts(view, open_ones)
        if view.ref.scope == ALL:
            noted.update(dict.fromkeys(doubts))
        verdict, firm = self._membership.qualified(verdict, view, assembled.reports, doubts)
        try:
            return verdict, await self._publish(verdict, assembled, firm=firm)
        finally:  # who asks and then looks for the incident finds it
            self._pending_asks.judged(tickets, verdict)

    async def _publish(self, verdict: Verdict, assembled: Assembled, *, firm: bool) -> bool:
        """Make it the current verdict, and tell the incidents of it; whether that is news."""
        key, number = key_of(verdict), verdict.snapshot.id or SnapshotId(0)
        if number < self._newest.get(key, 0):
            return False  # a newer snapshot, whose round was shorter, has spoken already
        self._newest[key] = number
        now = self._clock.now()
        self._metrics.judged(verdict, now, firm=firm)
        news = self._current.given(verdict)
        if news:
            self._log.info(
                "verdict changed", predicate=verdict.predicate, scope=verdict.snapshot.scope, holds=verdict.holds.value,
                snapshot=verdict.snapshot.id, text=verdict.witness.text,
            )  # fmt: skip
        if not self._incidents.concerns(verdict):
            return news
        found = await asyncio.to_thread(self._incidents.cores_in, verdict, assembled)
        touched = found is not None and self._incidents.saw(found, self._clock.now(), opens=firm)
        return news or touched

    async def _verdict(self, name: str, view: Snapshot) -> Verdict:
        return await self._evaluator.verdict(name, view) if view.processes else nobody_reported(name, view)


class _Seen:
    """One snapshot on its way to its verdicts: after the round about waits, then the one about idleness if it is needed."""

    def __init__(self, looked_at: Assembled, rounds: Rounds) -> None:
        self.looked_at = looked_at
        self.newest = looked_at
        self.doubts: dict[MembershipDoubt, None] = {}
        """The doubts about membership that withhold answers about all members."""
        self._rounds = rounds
        self._views: dict[int, tuple[Snapshot, list[Snapshot]]] = {}
        self._further: asyncio.Task[Assembled] | None = None

    def views(self, snapshot: Snapshot, make: Callable[[Snapshot], list[Snapshot]]) -> list[Snapshot]:
        """The views that ``make`` gives of a snapshot: made once, for all predicates."""
        if id(snapshot) not in self._views:
            self._views[id(snapshot)] = snapshot, make(snapshot)
        return self._views[id(snapshot)][1]

    async def idleness(self) -> Assembled:
        """The snapshot after the second round, which is taken once."""
        if self._further is None:
            self._further = asyncio.get_running_loop().create_task(self._rounds.of_idleness(self.looked_at))
        self.newest = await self._further
        return self.newest
