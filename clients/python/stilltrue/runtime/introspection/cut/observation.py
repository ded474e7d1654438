"""Observes at the cut what no event reveals: what tasks await, when their waits end, and which parties may cancel them.

Runs in the cutting thread under the recorder's lock; nothing is recorded meanwhile, but event loops keep running. Each task is
read twice, and a task that moved in between counts as able to move. If anything about a task is in doubt, its waits count as
ending by themselves, so doubt never makes a TRUE.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import Any

from stilltrue.model import PartyName, WaitNumber, has_ended
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import OBSERVED_MIN, Hold, LocalWait, PartyTarget
from stilltrue.runtime import compat
from stilltrue.runtime.calls.unanswered import UnansweredCall
from stilltrue.runtime.introspection.cut.intercepted_calls import intercepted_calls
from stilltrue.runtime.introspection.cut.searchers import Searchers
from stilltrue.runtime.introspection.cut.tasks_at_cut import TASKS_MAX, TaskAtCut, read_tasks
from stilltrue.runtime.introspection.cut.waits_at_cut import Same, SeenAtCut
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.owned_shares import OwnedShares
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.reachability.task_waits import ReportedTaskWait
from stilltrue.runtime.waits.reachability.thread_waits import ReportedThreadWait
from stilltrue.runtime.waits.semaphores.left import LeftSemaphore, left_semaphores
from stilltrue.runtime.waits.wait import CallStack, Elsewhere, SeenWait, name_of

EndingTarget = PartyTarget | Elsewhere
_TARGETS_MAX = 2_048


class Observer:
    """Observes the tasks of one process."""

    def __init__(
        self,
        parties: Parties,
        is_stopping: Callable[[], bool] = bool,
        answers: Callable[[], tuple[Hold, ...]] = tuple,
        owned: OwnedShares | None = None,
    ) -> None:
        """``parties`` knows the tasks; ``is_stopping`` returns whether a server of the process is being stopped.

        ``answers`` returns which party answers which resource; ``owned`` knows the shares that only their owners release.
        """
        self._owned = owned or OwnedShares(parties)
        self._parties = parties
        self._answers = answers
        self._is_stopping = is_stopping
        self.newest = self._cut = SeenAtCut()
        """The newest complete cut; replaced as a whole, since a look in another thread may read it."""
        self.searchers = Searchers(parties)
        self._next: int = OBSERVED_MIN

    def __call__(self, now: float) -> Observation:
        """Return the observation at a cut taken ``now`` (epoch). Never raises."""
        known = self._parties.tasks()
        self._cut = SeenAtCut()
        try:
            view = self.searchers.view(now)
            with compat.memory_kept_open(), no_collection:  # with ten thousand tasks a collection takes as long as all else
                seen = self._observe(known, now, view)
            self.searchers.remember(view)
            left = left_semaphores(self._parties.process, view.inside)
            seen = replace(seen, holds=(*self._answers(), *self.searchers.holds(view), *left))
            self._cut.left = {hold.party: one for hold, one in left.items()}
            stopping = self._is_stopping()
            final = () if stopping else tuple(one for one in self._parties.unanswered if one.is_final())
            self._cut.unanswered = {one.party: one for one in final}
            seen = replace(seen, unanswered={one.served.party: one.party for one in final})
            seen = self._with_ended_parties(seen, now)
            if stopping:
                ends = self._deadlines_of_stopping_servers(now)
                first = {party: min(end, seen.deadlines.get(party, end)) for party, end in ends.items()}
                seen = replace(seen, deadlines={**seen.deadlines, **first})
        except Exception:  # noqa: BLE001 - in doubt, every wait of every task may end by itself
            seen, self._cut = Observation(deadlines={party: now for _, party in known}), SeenAtCut()
        self.newest = self._cut
        return seen

    def _deadlines_of_stopping_servers(self, now: float) -> dict[PartyName, float]:
        """Parties that serve a call of a server that is being stopped: the call ends by itself after the grace period."""
        places = Places(self._parties)
        stack = (*places.threads.values(), *(places.of_task(task, party) for task, party in self._parties.tasks()))
        ends = {place.party: places.end_of_grace(place, now) for place in stack if place.party is not None}
        return {party: end for party, end in ends.items() if end is not None}

    def _observe(self, known: list[tuple[Task, PartyName]], now: float, workers: LiveProcessView) -> Observation:
        blocked = workers.blocked()
        known += workers.blocked_tasks(dict(known), [wait for _, _, wait in blocked])
        served = {root.task for root in list(self._parties.roots.values())}
        self.searchers.remember_tasks(workers, (wait for _, _, wait in blocked), served)
        if not known and not blocked:
            return Observation()
        if len(known) > TASKS_MAX:
            return Observation(deadlines={party: now for _, party in known})
        seen = read_tasks(known, self._parties, now, workers)
        waits = self._waits(seen, blocked, now, workers)
        deadlines = {one.party: one.deadline for one in seen.values() if one.deadline is not None}
        ways_out: dict[PartyName, tuple[PartyName, ...]] = {}
        for one in seen.values():
            if one.cancellers:
                others = [seen.get(rival) for rival in one.cancellers]
                if any(other is None for other in others):
                    deadlines[one.party] = now  # an unknown task may cancel it
                else:
                    ways_out[one.party] = tuple(sorted(other.party for other in others if other is not None))
        for one in seen.values():
            if one.holder is not None:  # a task that would cancel it runs only after the holder unblocks their loop
                ways_out[one.party] = tuple(sorted({*ways_out.get(one.party, ()), one.holder[0]}))
        held = {one.party for one in seen.values() if one.holder is not None} | {
            party for _, party, _ in workers.loops.values()
        }
        intercepted = intercepted_calls(self._parties, now)
        deadlines |= {party: end for party, end in intercepted.items() if end is not None}
        deadlines |= _deadlines_of_killed_workers(workers, now)
        parked = frozenset(self._cut.parked)
        return Observation(
            waits=waits, deadlines=deadlines, ways_out=ways_out, held=frozenset(held), parked=parked, intercepted=intercepted
        )

    def _waits(
        self,
        seen: dict[Task, TaskAtCut],
        blocked: list[tuple[PartyName, CallStack, SeenWait]],
        now: float,
        workers: LiveProcessView,
    ) -> tuple[LocalWait, ...]:
        read_waits = [(one, among) for one in seen.values() if (among := _wait_targets(one, seen, workers)) is not None]
        waits = [self._wait_of_task(one, among, now) for one, among in read_waits]
        waits += [self._wait_for_loop(one, *one.holder, now) for one in seen.values() if one.holder is not None]
        for party, stack, wait in _with_others(blocked):
            known = () if not (wait.once or wait.same) and workers.has_run(stack.ident) else _ending_targets(wait, workers)
            others = known != (PartyTarget(party=party),)
            if known and (others or stack.ident in workers.loops or _is_for_itself(wait, stack.ident, workers)):
                waits.append(self._wait_of_thread(party, stack, wait, known, now, workers))
        self._cut.waiting = frozenset(wait.waiter for wait in waits)
        return tuple(sorted(waits, key=lambda wait: wait.number))

    def _with_ended_parties(self, seen: Observation, now: float) -> Observation:
        """Add the waits of ended parties: each waits for itself, for ever."""
        left = {share: (count, self._owned.name_of(share)) for share, count in self._owned.left().items()}
        found = {target.party for wait in seen.waits for target in wait.among if isinstance(target, PartyTarget)}
        found |= {holder for _, holder in left.values()} | self._cut.left.keys() | self._cut.unanswered.keys()
        before = dict(self.newest.ended)
        waits = []
        for one in sorted(filter(has_ended, found)):
            if one not in before:
                before[one] = (WaitNumber(self._next), now)
                self._next += 1
            self._cut.ended[one] = number, since = before[one]
            among, what = (PartyTarget(party=one),), "nothing: it has ended"
            waits.append(LocalWait(waiter=one, number=number, among=among, since=since, uncoloured=True, what=what))
            if one in self._cut.left:
                self._cut.same[number] = _same_left(self._cut.left[one])
            elif one in self._cut.unanswered:
                self._cut.same[number] = self._same_unanswered(self._cut.unanswered[one])
        self._cut.waiting |= self._cut.ended.keys()
        return replace(seen, waits=(*seen.waits, *waits), left=left)

    def _same_unanswered(self, one: UnansweredCall) -> Same:
        return lambda _: one.is_final() and not self._is_stopping()

    def _wait_for_loop(self, one: TaskAtCut, holder: PartyName, step: Task | asyncio.Handle, now: float) -> LocalWait:
        waiter, blocking = OwnRef(one.task), OwnRef(step)  # of a handle, the search for references knows only such

        def same(_: Mapping[int, FrameType]) -> bool:
            still, known = waiter(), blocking()
            if still is None or known is None:
                return False
            # a callback that has continued ends its thread's wait, of which this one is a part
            return compat.current_task_of(still.get_loop()) is (known if compat.is_task(known) else None)

        number, since = self._number(~id(one.task), step, now, same)
        among = (PartyTarget(party=holder),)
        what = f"its event loop, which {holder} blocks"
        return LocalWait(waiter=one.party, number=number, among=among, since=since, what=what)

    def _wait_of_task(self, one: TaskAtCut, among: tuple[EndingTarget, ...], now: float) -> LocalWait:
        task, future = OwnRef(one.task), OwnRef(one.future)
        own, still = (None, None) if one.wait is None else (one.wait.same, one.wait.still)

        def same(_: Mapping[int, FrameType]) -> bool:
            if own is not None:
                return own() and (still is None or still())
            waiter, on = task(), future()
            waits = waiter is not None and on is not None and blocking_future(waiter) is on
            return waits and (still is None or still())

        begun = now if one.wait is None or one.wait.since is None else one.wait.since
        awaited = one.future if one.wait is None or own is None else one.wait.on
        number, since = self._number(id(one.task), awaited, begun, same)
        if one.wait is None:
            needs = len(among) if one.awaited is not None and one.awaited.needs_all else 1
            return LocalWait(waiter=one.party, number=number, among=among, needs=needs, deadline=one.deadline, since=since)
        if one.wait.reached:
            parties = frozenset(target.party for target in among if isinstance(target, PartyTarget))
            self._cut.reported[one.party] = ReportedTaskWait(task, future, parties)
        self._cut.handles[one.party] = one.wait.handles
        self._cut.share_waits |= {one.party} if one.wait.is_released_by_others else set()
        return self._seen_wait(one.wait, one.party, number, among, one.deadline, since)

    def _wait_of_thread(
        self,
        party: PartyName,
        stack: CallStack,
        wait: SeenWait,
        among: tuple[EndingTarget, ...],
        now: float,
        workers: LiveProcessView,
    ) -> LocalWait:
        weak, ident = OwnRef(wait.on), stack.ident
        where = None if wait.once or wait.same is not None else workers.where_now(ident)

        own, still = wait.same, wait.still

        def same(frames: Mapping[int, FrameType]) -> bool:
            if own is not None:
                return own() and (still is None or still())
            frame = frames.get(ident)
            if where is not None:
                return where_is(ident, frame) == where and (still is None or still())
            awaited = None if frame is None else compat.awaited_at(frame)
            return awaited is not None and awaited[0] is weak() and (still is None or still())

        if wait.reached:
            parties = frozenset(target.party for target in among if isinstance(target, PartyTarget))
            self._cut.signalled[party] = ReportedThreadWait(ident, weak, parties)
        number, since = self._number(ident, wait.on, now if wait.since is None else wait.since, same, where)
        self._cut.handles[party] = wait.handles
        self._cut.share_waits |= {party} if wait.is_released_by_others else set()
        return self._seen_wait(wait, party, number, among, wait.until, since)

    def _seen_wait(
        self,
        wait: SeenWait,
        waiter: PartyName,
        number: WaitNumber,
        among: tuple[EndingTarget, ...],
        deadline: float | None,
        since: float,
    ) -> LocalWait:
        """A wait that a resolver has seen, as reported: the object made at the cut before, if nothing about it has changed."""
        if wait.parks:
            self._cut.parked.add(number)
        needs = len(among) if wait.needs is None else wait.needs
        before = self.newest.local.get(number)
        if (
            before is None
            or before[1] != wait.what
            or (before[0].waiter, before[0].needs, before[0].deadline) != (waiter, needs, deadline)
            or before[0].among != among
        ):
            what = _wait_text(wait, among)
            before = (
                LocalWait(
                    waiter=waiter,
                    number=number,
                    among=among,
                    needs=needs,
                    deadline=deadline,
                    since=since,
                    uncoloured=True,
                    what=what,
                ),
                wait.what,
            )
        self._cut.local[number] = before
        return before[0]

    def _number(self, waiter: int, future: Any, begun: float, same: Same, where: object = None) -> tuple[WaitNumber, float]:
        """The number of this wait for ``future`` and when it was first observed; both stay the same while the wait lasts.

        ``where`` changes when the waiter runs.
        """
        key = (waiter, id(future))
        before = self.newest.numbers.get(key)
        if before is None or before[0]() is not future or before[3] != where:
            before = (OwnRef(future), WaitNumber(self._next), begun, where)
            self._next += 1
        self._cut.numbers[key] = before
        self._cut.same[before[1]] = same
        return before[1], before[2]


def _with_others(blocked: Iterable[tuple[PartyName, CallStack, SeenWait]]) -> Iterator[tuple[PartyName, CallStack, SeenWait]]:
    for party, stack, wait in blocked:
        yield party, stack, wait
        if wait.also is not None:
            yield party, stack, wait.also


def _is_for_itself(wait: SeenWait, ident: int, workers: LiveProcessView) -> bool:
    """Whether a thread's wait is surely one for the thread itself: by its identity, or for the item that it runs."""
    return any(one == ident or (isinstance(one, Future) and workers.thread_running(one) == ident) for one in wait.enders or ())


def _same_left(one: LeftSemaphore) -> Same:
    return lambda _: one.is_left()


def _deadlines_of_killed_workers(workers: LiveProcessView, now: float) -> dict[PartyName, float]:
    """Parties that block a loop until the server kills their process."""
    frames = {party: workers.stacks()[ident].frames for ident, (_, party, _) in workers.loops.items()}
    return {party: now for party, those in frames.items() if compat.is_killed_when_blocked(those)}


def _wait_text(wait: SeenWait, among: Iterable[EndingTarget]) -> str:
    return wait.what.format(" or ".join(one.party if isinstance(one, PartyTarget) else name_of(one) for one in among))


def _ending_targets(wait: SeenWait, workers: LiveProcessView) -> tuple[EndingTarget, ...]:
    """The parties that can end a wait; empty if one of them is unknown or too few are distinct."""
    found = [one if isinstance(one, Elsewhere) else _party(workers.party_of(one)) for one in wait.enders or ()]
    known = tuple(dict.fromkeys(one for one in found if one is not None))
    return known if None not in found and len(known) >= (wait.needs or 1) else ()


@functools.lru_cache(maxsize=_TARGETS_MAX)
def _party(party: PartyName | None) -> PartyTarget | None:
    return None if party is None else PartyTarget(party=party)


def _wait_targets(one: TaskAtCut, seen: dict[Task, TaskAtCut], workers: LiveProcessView) -> tuple[EndingTarget, ...] | None:
    """The targets a task waits for; None if it may make progress by itself."""
    if one.wait is not None:
        return _ending_targets(one.wait, workers) or None
    if one.worker is not None:
        return (PartyTarget(party=one.worker),)
    awaited = one.awaited
    if awaited is None:
        return None
    tasks = [future for future in awaited.futures if isinstance(future, asyncio.Task)]
    among = tuple(PartyTarget(party=seen[task].party) for task in tasks if task in seen)
    if not among or len(among) < len(tasks):
        return None
    if len(tasks) < len(awaited.futures) and not awaited.needs_all:
        return None  # a future that is not a task may complete by itself
    return among
