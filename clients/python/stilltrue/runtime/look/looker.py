"""The second look at suspected parties: still in the very same waits, until when, where, and what may free them.

It runs in the agent's own thread, off the path of any call. Other threads keep running, so everything that matters is read
twice, and a party that moved in between counts as changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import FrameType
from typing import Any

from stilltrue.model import PartyName, WaitNumber, has_ended
from stilltrue.protocol.report import OBSERVED_MIN
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.runtime.introspection.frames import innermost_frames
from stilltrue.runtime.introspection.observation import Observer
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.seen_at_cut import SeenAtCut
from stilltrue.runtime.look.activity import unaccounted
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.enders.found import Found
from stilltrue.runtime.look.enders.reached import add_reachers
from stilltrue.runtime.look.enders.ways_out import Search
from stilltrue.runtime.look.trace import trace_of
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.recorder import LockedRecorder
from stilltrue.runtime.seen.scene import LiveScene
from stilltrue.runtime.seen.wait import SeenWait
from stilltrue.runtime.transport.transport import Transport

WALK_SECONDS_MAX = 0.1
"""Processor time for finding once more who has the shares that suspects wait for."""


class Looker:
    """Looks at the parties of one process."""

    def __init__(self, live: LockedRecorder, parties: Parties, observer: Observer, transport: Transport | None = None) -> None:
        """``live`` holds the recorded waits, ``observer`` those seen at the cut; ``transport`` knows where calls are."""
        self._transport = transport
        self._live = live
        self._parties = parties
        self._observer = observer

    def look(self, request: LookRequest) -> Look:
        """What is seen now. Never raises: a party that could not be looked at is in doubt."""
        look = self._look(request)
        return look if self._transport is None else self._transport.checked(request, look)

    def _look(self, request: LookRequest) -> Look:
        at = self._observer.newest  # another thread may cut meanwhile
        happenings, before = self.in_force(request.suspects, at)
        acting: tuple[str, ...] = ()
        why = ""
        seen: dict[PartyName, Found] = {}
        try:
            reachable = self._observer.reached.at_look(before, at.reported)
            places = Places(self._parties)
            carried = self._transport.on_full_connections(request) if self._transport is not None else ()
            seen = self._see(places, before, carried, at)
            add_reachers(seen, reachable, self._parties)
            acting = self._unaccounted(places) if request.activity else ()
        except Exception as error:  # noqa: BLE001 - whatever fails here is doubt
            self._live.report_failure("a look")
            why = f"the look failed: {error!r}"
            acting = (why,)
        _, after = self.in_force(request.suspects, at)
        looks = (_whole(one.party, one.party in before, after, seen.get(one.party), why) for one in request.suspects)
        return Look(snapshot=request.snapshot, parties=tuple(looks), happenings=happenings, unaccounted=acting)

    def _unaccounted(self, places: Places) -> tuple[str, ...]:
        live = self._live
        with live.lock:
            served = tuple(live.recorder._served.values())  # noqa: SLF001 - read under its lock
        return unaccounted(places, served, live.covered)

    def _see(
        self, places: Places, parties: Iterable[PartyName], carried: Container[PartyName], at: SeenAtCut
    ) -> dict[PartyName, Found]:
        stack = [place for party in parties if (place := places.find(party)) is not None]
        search = Search(
            places,
            self._open_calls(),
            self._live.clock(),
            Budget(),
            self._waiting() | at.waiting,
            carried,
            at.handles_of,
            self._waits_for_shares(stack, at.of_shares),
            self._observer.sessions,
        )
        return search.find(stack)

    def _waits_for_shares(self, stack: Iterable[Place], of_shares: Container[PartyName]) -> dict[PartyName, SeenWait | None]:
        """The waits for what others may give back, read anew: nothing of the application's is kept in between."""
        now = self._live.clock()
        scene = LiveScene(self._parties, now, WALK_SECONDS_MAX, left=self._observer.left.at_look(now))
        waits: dict[PartyName, SeenWait | None] = {}
        for place in stack:
            if place.party is not None and place.party in of_shares:
                at = None if place.ident == 0 else scene.stacks().get(place.ident)
                wait = scene.wait_of(at) if at is not None else None if place.task is None else scene.wait_of_task(place.task)
                waits[place.party] = wait if wait is not None and wait.enders else None
        return waits

    def _waiting(self) -> frozenset[PartyName]:
        """The parties with a wait that is recorded."""
        with self._live.lock:
            recorder = self._live.recorder
            recorded = {wait.waiter for wait in recorder._waits.values()}  # noqa: SLF001 - read under its lock
            made = {call.party for call in recorder._made.values() if call.wait and call.party is not None}  # noqa: SLF001
        return frozenset(recorded | made)

    def _open_calls(self) -> list[Any]:
        """gRPC's own objects of the calls that are open, where the shells keep them."""
        with self._live.lock:
            open_calls = list(self._live.recorder._made.values())  # noqa: SLF001 - read under its lock
        found = (made.handle() for made in open_calls if made.handle is not None)
        return [call for call in found if call is not None]

    def in_force(self, suspects: Iterable[Suspect], at: SeenAtCut | None = None) -> tuple[int, dict[PartyName, float | None]]:
        """How much has happened; the suspects all of whose waits are in force at this instant, and until when at the latest.

        ``at``: what was seen at the cut; None: at the newest. Not :meth:`Recorder.look`, which looks at every task under the
        lock: that is done once, at the cut.
        """
        live, seen = self._live, at or self._observer.newest
        with live.lock:
            live.catch_up()
            recorder = live.recorder
            ends = {call.wait: call.wait_until for call in recorder._made.values() if call.wait}  # noqa: SLF001 - read under its lock
            ends |= {number: wait.deadline for number, wait in recorder._waits.items()}  # noqa: SLF001
            recorder.ask_for_callers()
            happenings = recorder.happenings
        found = {}
        frames = innermost_frames()  # once: with a thousand threads each reading takes as long as a hundred waits
        for one in suspects:
            if all(_lasts(number, ends, seen, frames) for number in one.waits):
                found[one.party] = _first_of(ends.get(number) for number in one.waits)
        return happenings, found


def _lasts(number: WaitNumber, recorded: Container[WaitNumber], seen: SeenAtCut, frames: Mapping[int, FrameType]) -> bool:
    return seen.lasts(number, frames) if number >= OBSERVED_MIN else number in recorded


def _first_of(ends: Iterable[float | None]) -> float | None:
    return min((end for end in ends if end is not None), default=None)


def _whole(party: PartyName, begun: bool, after: Mapping[PartyName, float | None], found: Found | None, why: str) -> PartyLook:
    """One party's look. ``after``: those still in their waits at the end; ``found``: what may free it."""
    if not begun or party not in after:
        return PartyLook(party=party, unchanged=False)
    if has_ended(party):
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
        deadline=_first_of((after[party], found.until, cancelled_at)),
        ways_out=tuple(found.ways_out.values()),
        doubt=found.doubt,
        stack=place.stack(),
        trace=trace_of(place),
        interruptible=found.interruptible,
        grown_by=found.grown_by,
    )
