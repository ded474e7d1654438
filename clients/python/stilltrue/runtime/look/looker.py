"""The second look at suspected parties: still in the very same waits, until when, where, and what may free them.

It runs in the agent's own thread, off the path of any call. Python code of other threads runs on meanwhile: whatever matters is
looked at twice, and a party that moved in between is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.runtime.look.places import Place, Places
from stilltrue.runtime.look.trace import trace_of
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
        before, happenings = self._in_force(request.suspects)
        try:
            looks = self._look(request.suspects, before)
        except Exception as error:  # noqa: BLE001 - whatever fails here is doubt
            self._live.report_failure("a look")
            looks = [_doubtful(suspect, f"the look failed: {error!r}") for suspect in request.suspects]
        after, _ = self._in_force(request.suspects)
        parties = tuple(_changed(look) if look.party not in after else look for look in looks)
        return Look(snapshot=request.snapshot, parties=parties, happenings=happenings)

    def _in_force(self, suspects: Iterable[Suspect]) -> tuple[set[PartyName], int]:
        """The suspects all of whose waits are still in force, at one instant; and how much has happened by then."""
        live = self._live
        with live.lock:
            live._catch_up()  # noqa: SLF001 - what finalizers put off has happened
            recorder = live.recorder
            recorded: set[WaitNumber] = {call.wait for call in recorder._made.values() if call.wait}  # noqa: SLF001
            recorded |= recorder._waits.keys()  # noqa: SLF001
            happenings = int(getattr(recorder, "happenings", 0))
        return {one.party for one in suspects if all(self._lasts(number, recorded) for number in one.waits)}, happenings

    def _lasts(self, number: WaitNumber, recorded: set[WaitNumber]) -> bool:
        return self._observer.lasts(number) if number >= NUMBER_MIN else number in recorded

    def _look(self, suspects: tuple[Suspect, ...], in_force: set[PartyName]) -> list[PartyLook]:
        places = Places(self._parties)
        return [self._look_at(suspect, places) if suspect.party in in_force else _gone(suspect) for suspect in suspects]

    def _look_at(self, suspect: Suspect, places: Places) -> PartyLook:
        try:
            place = places.find(suspect.party)
        except Exception as error:  # noqa: BLE001 - as above
            return _doubtful(suspect, f"it cannot be looked at: {error!r}")
        if place is None:
            return _doubtful(suspect, "its thread or task cannot be found")
        return PartyLook(
            party=suspect.party, unchanged=True, deadline=_deadline(place), stack=place.stack(), trace=trace_of(place)
        )


def _deadline(place: Place) -> float | None:
    """When gRPC cancels whoever stands there, whatever it waits for."""
    served: Any = place.serves
    return served.deadline if served is not None and served.interruptible else None


def _gone(suspect: Suspect) -> PartyLook:
    return PartyLook(party=suspect.party, unchanged=False)


def _changed(look: PartyLook) -> PartyLook:
    return PartyLook(party=look.party, unchanged=False, stack=look.stack, trace=look.trace)


def _doubtful(suspect: Suspect, why: str) -> PartyLook:
    return PartyLook(party=suspect.party, unchanged=True, doubt=why)
