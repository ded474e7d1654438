"""The second look at suspected parties: still in the very same waits, until when, where, and what may free them.

It runs in the agent's own thread, off the path of any call. Python code of other threads runs on meanwhile: whatever matters is
looked at twice, and a party that moved in between is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.runtime.look.activity import unaccounted
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.places import Places
from stilltrue.runtime.look.trace import trace_of
from stilltrue.runtime.look.ways_out import Found, Search
from stilltrue.runtime.observation import NUMBER_MIN, Observer
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.recorder import LockedRecorder


class Looker:
    """Looks at the parties of one process."""

    def __init__(self, live: LockedRecorder, parties: Parties, observer: Observer) -> None:
        """``live`` has recorded their waits, ``observer`` has seen the others."""
        self._live = live
        self._parties = parties
        self._observer = observer

    def look(self, request: LookRequest) -> Look:
        """What is seen now. Never raises: a party that could not be looked at is in doubt."""
        recorded = self._live.look(request)
        try:
            places = Places(self._parties)
            seen = self._see(places, [look.party for look in recorded.parties if look.unchanged])
            acting = self._unaccounted(places) if request.activity else ()
        except Exception as error:  # noqa: BLE001 - whatever fails here is doubt
            self._live.report_failure("a look")
            why = f"the look failed: {error!r}"
            return replace(recorded, parties=tuple(replace(look, doubt=why) for look in recorded.parties), unaccounted=(why,))
        after = self._in_force(request.suspects)
        parties = tuple(_whole(look, seen.get(look.party), look.party in after) for look in recorded.parties)
        return replace(recorded, parties=parties, unaccounted=acting)

    def _unaccounted(self, places: Places) -> tuple[str, ...]:
        live = self._live
        with live.lock:
            served = tuple(live.recorder._served.values())  # noqa: SLF001 - same house
        return unaccounted(places, served, live.first_call_at, live.clock())

    def _see(self, places: Places, parties: Iterable[PartyName]) -> dict[PartyName, Found]:
        stand = [place for party in parties if (place := places.find(party)) is not None]
        search = Search(places, self._open_calls(), self._live.clock(), Budget())
        return search.find(stand)

    def _open_calls(self) -> list[Any]:
        """gRPC's own objects of the calls that are open, where the shells keep them."""
        with self._live.lock:
            open_calls = list(self._live.recorder._made.values())  # noqa: SLF001 - same house
        found = (made.handle() for made in open_calls if made.handle is not None)
        return [call for call in found if call is not None]

    def _in_force(self, suspects: Iterable[Suspect]) -> set[PartyName]:
        """The suspects all of whose waits are still in force, at one instant."""
        live = self._live
        with live.lock:
            recorder = live.recorder
            recorded: set[WaitNumber] = {call.wait for call in recorder._made.values() if call.wait}  # noqa: SLF001 - same house
            recorded |= recorder._waits.keys()  # noqa: SLF001
        return {one.party for one in suspects if all(self._lasts(number, recorded) for number in one.waits)}

    def _lasts(self, number: WaitNumber, recorded: set[WaitNumber]) -> bool:
        return self._observer.lasts(number) if number >= NUMBER_MIN else number in recorded


def _whole(look: PartyLook, found: Found | None, lasts: bool) -> PartyLook:
    """``look``, of the record alone, with what was found."""
    if not look.unchanged or not lasts:
        return replace(look, unchanged=False)
    if found is None:
        return replace(look, doubt="its thread or task cannot be found")
    place = found.place
    served = place.serves
    ends = [look.deadline, found.until]
    if served is not None and (served.interruptible or found.interruptible):
        ends.append(served.deadline)
    return replace(
        look,
        deadline=min((end for end in ends if end is not None), default=None),
        ways_out=tuple(found.ways_out.values()),
        doubt=found.doubt,
        stack=place.stack(),
        trace=trace_of(place),
        interruptible=found.interruptible,
    )
