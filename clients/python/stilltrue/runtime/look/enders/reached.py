"""What reachability says of the ways out of one look: who can end a wait that is so proved, and who parks and ends none.

Rules:

1. Whoever can reach what a suspect waits for, and was not named at the cut, is a way out. Without a proof there is doubt.
2. A task that parks ends nobody's wait: it is no way out, unless it has one itself: a timer, a canceller, whatever the search
   finds for a suspect. Each that parks is looked at like a suspect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stilltrue.model import PartyName
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.look.enders.ways_out import Found
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.seen.reachability.waits import Reachable
from stilltrue.runtime.seen.wait import Task

PARKING_MAX = 20
_UNPROVED = "who can reach what it waits for could not be found, or nothing keeps its task"


class ReachedEnders:
    """Those of one look."""

    def __init__(self, reachable: Reachable, parties: Parties, places: Places) -> None:
        """``reachable`` is what was proved before the look began."""
        self._reachable = reachable
        self._places = places
        self._parties = parties
        few = len(reachable.parking) <= PARKING_MAX
        parking = {party: task for task, party in parties.tasks() if task in reachable.parking} if few else {}
        self._parking: dict[PartyName, Task] = parking
        self._added: frozenset[PartyName] = frozenset()

    def parking(self, suspects: Iterable[Place]) -> list[Place]:
        """Where those stand that park, but for the suspects themselves."""
        known = {place.party for place in suspects}
        self._added = frozenset(party for party in self._parking if party not in known)
        return [self._places.of_task(task, party) for party, task in self._parking.items() if party in self._added]

    def added_to(self, found: dict[PartyName, Found]) -> dict[PartyName, Found]:
        """The ways out of the suspects, with rules 1 and 2."""
        for party, asked in self._reachable.asked.items():
            task = asked.task()
            enders = None if task is None else self._reachable.enders.get(task)
            if party in found and not enders:
                found[party].doubt = found[party].doubt or _UNPROVED
            elif party in found:
                for ender in enders or ():
                    self._add(found[party], ender, asked.enders)
        idle = self._never_acting(found)
        for one in found.values():
            for key in [key for key, way in one.ways_out.items() if way.party in idle]:
                del one.ways_out[key]
        return {party: one for party, one in found.items() if party not in self._added}

    def _add(self, one: Found, ender: Task, known: frozenset[PartyName]) -> None:
        party = self._parties.of(ender, None)
        if party not in known and party != one.place.party:
            one.add(f"task {ender.get_name()}, which can reach what it waits for", party, ender)

    def _never_acting(self, found: Mapping[PartyName, Found]) -> set[PartyName]:
        """Those that park, and have no way out but by each other."""
        left = {party for party in self._parking if party in found}
        while gone := {party for party in left if _may_act(found[party], left)}:
            left -= gone
        return left


def _may_act(one: Found, idle: set[PartyName]) -> bool:
    return bool(one.doubt) or one.until is not None or any(way.party not in idle for way in one.ways_out.values())
