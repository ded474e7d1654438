"""The second look at suspected parties: whether they are still in the same waits, until when, where, and what may free them.

Runs on a thread of the agent, off the path of any call. Other threads keep running, so everything that matters is read twice,
and a party that moved in between counts as changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from types import FrameType
from typing import Any

from stilltrue.model import PartyName, WaitNumber, has_ended
from stilltrue.protocol.report import OBSERVED_MIN
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.cut.observation import Observer
from stilltrue.runtime.introspection.cut.waits_at_cut import SeenAtCut
from stilltrue.runtime.introspection.frames import innermost_frames_of_others
from stilltrue.runtime.introspection.one_reader import reading
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.look.budget import Budget, seconds_for
from stilltrue.runtime.look.termination.activity import unaccounted
from stilltrue.runtime.look.trace import trace_of
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.proved import add_tasks_that_reach, add_threads_that_reach
from stilltrue.runtime.look.ways_out.search import Search
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.transport.transport import Transport
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import SeenWait

OTHERS_SECONDS_MAX = 1.0
"""How long a look waits for another agent of the process to finish its own."""
WALK_SECONDS_MAX = 0.1
"""Processor time for finding the holders of awaited shares again."""


class Looker:
    """Looks at the parties of one process."""

    def __init__(self, live: LockedRecorder, parties: Parties, observer: Observer, transport: Transport | None = None) -> None:
        """``live`` has the recorded waits, ``observer`` those observed at the cut; ``transport`` locates calls."""
        self._transport = transport
        self._live = live
        self._parties = parties
        self._observer = observer

    def look(self, request: LookRequest) -> Look:
        """Look now. Never raises: a party that could not be looked at is in doubt."""
        with reading(OTHERS_SECONDS_MAX):
            look = self._look(request)
        return look if self._transport is None else self._transport.checked(request, look)

    def _look(self, request: LookRequest) -> Look:
        at = self._observer.newest  # another thread may cut meanwhile
        _, before = self.waits_in_force(request.suspects, at)
        acting: tuple[str, ...] = ()
        why = ""
        seen: dict[PartyName, Found] = {}
        try:
            searchers = self._observer.searchers
            reachable = searchers.reached.at_look(before, at.reported)
            signalled = searchers.signals.at_look({one: at.signalled[one] for one in before if one in at.signalled})
            places = Places(self._parties)
            on_full = self._transport.on_full_connections(request) if self._transport is not None else ()
            seen = self._see(places, before, on_full, at)
            party_of = self._party_of(at)
            add_tasks_that_reach(seen, reachable, party_of)
            add_threads_that_reach(seen, at.signalled, signalled, party_of)
            acting = (self._unaccounted() or self._unaccounted()) if request.activity else ()
        except Exception as error:  # noqa: BLE001 - any failure here is doubt
            self._live.report_failure("taking a look")
            why = f"the look failed: {error!r}"
            acting = (why,)
        happenings, after = self.waits_in_force(request.suspects, at)  # counts what happened while this look was taken
        looks = (_party_look(one.party, one.party in before, after, seen.get(one.party), why) for one in request.suspects)
        return Look(snapshot=request.snapshot, parties=tuple(looks), happenings=happenings, unaccounted=acting)

    def _party_of(self, at: SeenAtCut) -> Callable[[int | Task], PartyName | None]:
        """Returns the party of a thread or task; that of a blocked loop's thread is the task that blocks it, as at the cut."""
        waits = {one.ident: SeenWait(on=one.thing, enders=(one.ident,)) for one in at.signalled.values()}
        return LiveProcessView(self._parties, self._live.clock(), signalled=waits).party_of

    def _unaccounted(self) -> tuple[str, ...]:
        """What may still act now. One reading may miss work that passes from a thread to a loop meanwhile, so it takes two."""
        places, live = Places(self._parties), self._live
        with live.lock:
            served = tuple(live.recorder.calls_served.values())  # read under its lock
        return unaccounted(places, served, live.covered)

    def _see(
        self, places: Places, parties: Mapping[PartyName, float | None], on_full: Container[PartyName], at: SeenAtCut
    ) -> dict[PartyName, Found]:
        stack = [place for party in parties if (place := self._place_of(places, party)) is not None]
        searchers = self._observer.searchers
        search = Search(
            places,
            self._open_calls(places),
            self._live.clock(),
            Budget(seconds_for(len(stack))),
            waiting=self._waiting() | at.waiting,
            on_full_connections=on_full,
            handles_seen=at.handles_of,
            share_waits=self._waits_for_shares(stack, at),
            sessions=searchers.sessions,
            file_locks=searchers.file_locks,
            shared_locks=searchers.shared_locks,
            own_work=searchers.own_work,
            proved=at.signalled,
            bounded={party for party, end in parties.items() if end is not None},
        )
        return search.find(stack)

    def _place_of(self, places: Places, party: PartyName) -> Place | None:
        """The place of a party; that of an ended handler is gRPC's task, if any, that waits for the end of its call."""
        left = self._parties.unanswered.of(party)
        if left is None:
            return places.find(party)
        return Place(party=party, frames=(), task=left.task, serves=left.served, context=left.context)

    def _waits_for_shares(self, stack: Iterable[Place], at: SeenAtCut) -> dict[PartyName, SeenWait | None]:
        """The waits for shares that others may release, read again: no application object is kept in between.

        The holders must be known again, but not if it was proved who can reach what is waited for: that is proved anew.
        """
        now = self._live.clock()
        view = LiveProcessView(self._parties, now, WALK_SECONDS_MAX, left=self._observer.searchers.left.at_look(now))
        waits: dict[PartyName, SeenWait | None] = {}
        for place in stack:
            if place.party is not None and place.party in at.share_waits:
                stack_now = None if place.ident == 0 else view.stacks().get(place.ident)
                of_task = None if place.task is None else view.wait_of_task(place.task)
                wait = of_task if stack_now is None else view.wait_of(stack_now)
                proved = place.party in at.signalled or place.party in at.reported
                waits[place.party] = wait if wait is not None and (wait.enders or proved) else None
        return waits

    def _waiting(self) -> frozenset[PartyName]:
        """The parties with a recorded wait."""
        with self._live.lock:
            recorder = self._live.recorder
            recorded = {wait.waiter for wait in recorder.open_waits.values()}  # read under its lock
            made = {call.party for call in recorder.calls_made.values() if call.wait and call.party is not None}
        return frozenset(recorded | made)

    def _open_calls(self, places: Places) -> list[Any]:
        """gRPC's own objects of open calls, if the shells keep them, and its states of calls that are not recorded."""
        with self._live.lock:
            open_calls = list(self._live.recorder.calls_made.values())  # read under its lock
        found = (made.handle() for made in open_calls if made.handle is not None)
        recorded = [call for call in found if call is not None]
        known = {id(compat.state_of(call)) for call in recorded}
        states = [state for place in places.threads.values() for state in compat.states_of_calls(place.frames)]
        states += [compat.state_of_task(task) for loop in places.loops() for task in compat.tasks_of(loop) or ()]
        return [*recorded, *(state for state in states if state is not None and id(state) not in known)]

    def waits_in_force(
        self, suspects: Iterable[Suspect], at: SeenAtCut | None = None
    ) -> tuple[int, dict[PartyName, float | None]]:
        """Return the event counter, and each suspect whose waits are all in force now with the time until which they can last.

        ``at``: observations of a cut; by default those of the newest. :meth:`Recorder.look` is not used, because it reads every
        task under the lock, which is only done at the cut.
        """
        live, seen = self._live, at or self._observer.newest
        with live.lock:
            live.catch_up()
            recorder = live.recorder
            ends = {call.wait: call.wait_until for call in recorder.calls_made.values() if call.wait}  # read under its lock
            ends |= {number: wait.deadline for number, wait in recorder.open_waits.items()}
            recorder.poll_callers()
            happenings = recorder.happenings
        found = {}
        frames = innermost_frames_of_others()  # read once: with a thousand threads a read costs as much as a hundred waits
        for one in suspects:
            if all(_lasts(number, ends, seen, frames) for number in one.waits):
                found[one.party] = _earliest(ends.get(number) for number in one.waits)
        return happenings, found


def _lasts(number: WaitNumber, recorded: Container[WaitNumber], seen: SeenAtCut, frames: Mapping[int, FrameType]) -> bool:
    return seen.lasts(number, frames) if number >= OBSERVED_MIN else number in recorded


def _earliest(ends: Iterable[float | None]) -> float | None:
    return min((end for end in ends if end is not None), default=None)


def _party_look(
    party: PartyName, begun: bool, after: Mapping[PartyName, float | None], found: Found | None, why: str
) -> PartyLook:
    """One party's look. ``after``: parties still in their waits at the end; ``found``: what may free this one."""
    if not begun or party not in after:
        return PartyLook(party=party, unchanged=False)
    if has_ended(party) and found is None:
        return PartyLook(party=party, unchanged=True, deadline=after[party], doubt=why)
    if found is None:
        doubt = why or "its thread or task cannot be found"
        return PartyLook(party=party, unchanged=True, deadline=after[party], doubt=doubt)
    place = found.place
    served = place.serves
    cancelled_at = served.deadline if served is not None and (served.interruptible or found.interruptible) else None
    return PartyLook(
        party=party,
        unchanged=True,
        deadline=_earliest((after[party], found.until, cancelled_at)),
        ways_out=tuple(found.ways_out.values()),
        doubt=found.doubt,
        stack=place.stack(),
        trace=trace_of(place),
        interruptible=found.interruptible,
        grown_by=found.grown_by,
    )
