"""Verifies a snapshot, evaluates every predicate in every scope, and publishes and stores the verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from detector.assembly.results import completed
from detector.core.membership_doubt import MembershipDoubt
from detector.core.protocol.assembler import Assembled
from detector.core.scope import views_of
from detector.core.snapshot import Snapshot
from detector.core.undetermined import nobody_reported, undetermined
from detector.core.verification.verifier import Interim
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

Answer = TypeVar("Answer")

ALL = "all"
"""The scope of all members."""
_UNDECLARED = "undeclared"
"""The kind of a first verdict that is not logged: no process has the fact that the predicate is about."""
URGENT = "deadlock"
"""The predicate that is evaluated first, with those that questions are about."""
HEAD_START_SECONDS = 0.1
"""How long the predicates of pending questions run alone before the others start, since all share one interpreter."""


class Evaluated(NamedTuple):
    """A verified snapshot and its published verdicts."""

    assembled: Assembled
    verdicts: tuple[Verdict, ...]


class SnapshotVerdicts:
    """Evaluates snapshots. Every method is called on the event loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        roster: Roster,
        membership: Membership,
        rounds: Rounds,
        partial_rounds: Rounds,
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
        """``partial_rounds``: verification rounds of partial snapshots.

        ``remote_assembly``: evaluates instead; ``shown`` is called with each snapshot that it assembled.
        """
        self._remote_assembly = remote_assembly
        self._shown = shown
        self._scopes = settings.scopes
        self._clock = clock
        self._roster = roster
        self._membership = membership
        self._rounds = rounds
        self._partial_rounds = partial_rounds
        self._evaluator = evaluator
        self._incidents = incidents
        self._current = current
        self._pending_asks = pending_asks
        self._snapshot_store = snapshot_store
        self._archive_sink = archive_sink
        self._metrics = metrics
        self._log = log
        self._newest: dict[Key, SnapshotId] = {}

    async def evaluate(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Evaluate every predicate in every scope, publishing each verdict as soon as it is known. Never raises."""
        try:
            await self._evaluate_all(assembled, tickets)
        except Exception as error:  # noqa: BLE001 - a failure must be logged
            self._log.failure("verdicts not recorded", error, snapshot=assembled.snapshot.ref.id)

    async def _evaluate_all(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Verify suspicions before evaluating; a TRUE that depends on idleness takes a second round."""
        if self._remote_assembly is not None:
            await self._evaluate_remotely(self._remote_assembly, assembled, tickets)
            return
        looked_at = await self._verify(self._rounds, assembled, tickets)
        seen = _Verified(looked_at, self._rounds)
        self._snapshot_store.taken(seen.looked_at)
        views = range(1 + len(self._scopes))
        given = await self._per_predicate(tickets, lambda name: [self._evaluate_one(name, at, seen, tickets) for at in views])
        changed = any(news for _, news in given)
        newest = replace(seen.newest, snapshot=replace(seen.newest.snapshot, membership=tuple(seen.doubts)))
        self.keep(newest, tuple(verdict for verdict, _ in given), pinned=changed)

    async def evaluate_partial(self, assembled: Assembled, tickets: tuple[int, ...]) -> Evaluated:
        """Verify and evaluate a partial snapshot; only TRUE verdicts are published."""
        looked_at = await self._verify(self._partial_rounds, assembled, tickets)
        evaluated = Evaluated(looked_at, await self._publish_true(looked_at, tickets))
        unsure, looks = looked_at.snapshot.waits.uncoloured.any(), looked_at.snapshot.looks.values()
        if unsure and any(look.unchanged and not look.doubt for look in looks):
            self._pending_asks.ask_again(tickets)  # rule 5 of the verifier: another round may confirm this one
        return evaluated

    def has_pending(self, tickets: tuple[int, ...]) -> bool:
        """Whether any of the questions is still unanswered."""
        return self._pending_asks.waiting(tickets)

    async def _verify(self, rounds: Rounds, assembled: Assembled, tickets: tuple[int, ...]) -> Assembled:
        """Verify a snapshot. Meanwhile, verdicts that are TRUE regardless of the outstanding looks are published."""
        publishing: list[asyncio.Task[tuple[Verdict, ...]]] = []

        def early(interim: Interim) -> None:
            if interim.certain:
                publishing.append(asyncio.get_running_loop().create_task(self._publish_true(interim.assembled, tickets)))
            else:
                self._pending_asks.ask_again(tickets)

        looked_at = await rounds.verify_waits(assembled, early)
        await asyncio.gather(*publishing)  # early verdicts must not be published after the full ones
        return looked_at

    async def _publish_true(self, assembled: Assembled, tickets: tuple[int, ...]) -> tuple[Verdict, ...]:
        """Evaluate every predicate in every scope; publish verdicts that are TRUE and do not depend on idleness."""
        self._snapshot_store.taken(assembled)
        views = self._views(assembled.snapshot)
        found = await self._per_predicate(
            tickets, lambda name: [self._publish_if_true(name, view, assembled, tickets) for view in views]
        )
        return tuple(verdict for verdict in found if verdict is not None)

    async def _per_predicate(
        self, tickets: tuple[int, ...], tasks_of: Callable[[str], list[Coroutine[Any, Any, Answer]]]
    ) -> list[Answer]:
        """Await ``tasks_of`` each predicate; returns the results by name. Predicates of pending questions get a head start."""
        names, asked = self._evaluator.names, self._pending_asks.predicates(tickets) | {URGENT}
        begun: dict[str, list[asyncio.Task[Answer]]] = {}

        def begin(some: Iterable[str]) -> None:
            begun.update((name, [asyncio.get_running_loop().create_task(one) for one in tasks_of(name)]) for name in some)

        begin(name for name in names if name in asked)
        if begun:
            await asyncio.wait([*chain.from_iterable(begun.values())], timeout=HEAD_START_SECONDS)
        begin(name for name in names if name not in asked)
        return await asyncio.gather(*chain.from_iterable(begun[name] for name in names))

    async def _publish_if_true(
        self, name: str, view: Snapshot, assembled: Assembled, tickets: tuple[int, ...]
    ) -> Verdict | None:
        verdict = await self._verdict(name, view)
        if verdict.holds is not Holds.TRUE or await self._evaluator.depends_on_idleness(name, view, verdict):
            return None
        if self._current.includes(verdict):  # watchers have it already
            self._pending_asks.answer(tickets, verdict)
            return verdict
        return (await self._qualify_and_publish(verdict, view, assembled, {}, tickets))[0]

    async def _evaluate_remotely(self, assembly: RemoteAssembly, attendance: Assembled, tickets: tuple[int, ...]) -> None:
        """Have another process assemble and evaluate; qualify and publish its verdicts like our own."""
        watched = sorted({PartyName(key[0]) for incident in self._incidents.open_ones() for key in incident.keys})
        try:
            result = await assembly.result(attendance, watched)
        except NoResultError as error:
            self._log.warning("no result", snapshot=attendance.snapshot.ref.id, reason=str(error))
            views = self._views(attendance.snapshot)
            verdicts = [undetermined(name, view.ref, "overrun", str(error)) for name in self._evaluator.names for view in views]
            assembled = attendance
        else:
            assembled, verdicts = completed(result, attendance), list(result.verdicts)
            self._shown(assembled)
        self._snapshot_store.taken(assembled)
        by_scope = {view.ref.scope: view for view in self._views(assembled.snapshot)}
        doubts: dict[MembershipDoubt, None] = {}
        given = [
            await self._qualify_and_publish(verdict, by_scope[verdict.snapshot.scope], assembled, doubts, tickets)
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
        """The snapshot and its view in each scope; an unknown missing process belongs to every scope."""
        found = {name: self._roster.get(name) for name in snapshot.missing}
        absent = {
            name: None if member is None else ProcessState(service=member.process.service, labels=member.labels)
            for name, member in found.items()
        }
        return views_of(snapshot, {scope.name: scope.labels for scope in self._scopes}, absent)

    async def _evaluate_one(self, name: str, view: int, seen: _Verified, tickets: tuple[int, ...]) -> tuple[Verdict, bool]:
        snapshot = seen.views(seen.looked_at.snapshot, self._views)[view]
        verdict = await self._verdict(name, snapshot)
        if await self._evaluator.depends_on_idleness(name, snapshot, verdict):
            snapshot = seen.views((await seen.idleness()).snapshot, self._views)[view]
            verdict = await self._verdict(name, snapshot)
        return await self._qualify_and_publish(verdict, snapshot, seen.newest, seen.doubts, tickets)

    async def _qualify_and_publish(
        self,
        verdict: Verdict,
        view: Snapshot,
        assembled: Assembled,
        noted: dict[MembershipDoubt, None],
        tickets: tuple[int, ...],
    ) -> tuple[Verdict, bool]:
        """Qualify a verdict by the membership and publish it; also returns whether it is news. ``noted`` collects doubts."""
        open_ones = self._incidents.open_ones() if view.missing else []
        doubts = self._membership.doubts(view, open_ones)
        if view.ref.scope == ALL:
            noted.update(dict.fromkeys(doubts))
        verdict, firm = self._membership.qualified(verdict, view, assembled.reports, doubts)
        try:
            return verdict, await self._publish(verdict, assembled, firm=firm)
        finally:  # after publishing, so that a client that was answered finds the incident
            self._pending_asks.answer(tickets, verdict)

    async def _publish(self, verdict: Verdict, assembled: Assembled, *, firm: bool) -> bool:
        """Update the current verdict and the incidents; return whether either changed."""
        key, number = key_of(verdict), verdict.snapshot.id or SnapshotId(0)
        if number < self._newest.get(key, 0):
            return False  # a newer snapshot with a shorter round was faster
        first = key not in self._newest
        self._newest[key] = number
        now = self._clock.now()
        self._metrics.verdict(verdict, now, firm=firm)
        news = self._current.update(verdict)
        if news and not (first and verdict.witness.kind == _UNDECLARED):
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


class _Verified:
    """A snapshot after its round about waits, and if needed after the one about idleness."""

    def __init__(self, looked_at: Assembled, rounds: Rounds) -> None:
        self.looked_at = looked_at
        self.newest = looked_at
        self.doubts: dict[MembershipDoubt, None] = {}
        """Doubts about membership that qualify answers about all members."""
        self._rounds = rounds
        self._views: dict[int, tuple[Snapshot, list[Snapshot]]] = {}
        self._further: asyncio.Task[Assembled] | None = None

    def views(self, snapshot: Snapshot, make: Callable[[Snapshot], list[Snapshot]]) -> list[Snapshot]:
        """The views that ``make`` creates of a snapshot, cached for all predicates."""
        if id(snapshot) not in self._views:
            self._views[id(snapshot)] = snapshot, make(snapshot)
        return self._views[id(snapshot)][1]

    async def idleness(self) -> Assembled:
        """The snapshot after the second round, which runs at most once."""
        if self._further is None:
            self._further = asyncio.get_running_loop().create_task(self._rounds.verify_idleness(self.looked_at))
        self.newest = await self._further
        return self.newest
