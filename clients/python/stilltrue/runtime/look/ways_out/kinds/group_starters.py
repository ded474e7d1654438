"""Actors that may start another task in a task group: if that one fails, the group cancels all of its tasks, and its block.

Rules:

1. The groups of a suspect are those whose failure cancels its task, or a task that awaits it
   (:func:`~stilltrue.runtime.introspection.tasks.groups_of`).
2. An actor counts if it can reach the group and its code mentions ``create_task``, whatever it starts: which tasks fail, no
   code shows. So does a method of a server, as a request to come.
3. A group of anyio leads to its scope, so who may start a task there is found like who cancels it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime.introspection.tasks import groups_of
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.named_reach import NamedReach
from stilltrue.runtime.look.ways_out.reach import Reach

_STARTING = frozenset({"create_task"})


class GroupStarters:
    """Finds actors that may start a task in a suspect's task groups."""

    def __init__(self, found: Mapping[PartyName, Found], budget: Budget) -> None:
        """``found``: the suspects by party."""
        self._parties: dict[int, list[PartyName]] = {}
        groups: list[Any] = []
        for party, one in found.items():
            tasks = [] if one.place.task is None else [one.place.task, *one.awaiters]
            for group in dict.fromkeys(group for task in tasks for group in groups_of(task)):
                self._parties.setdefault(id(group), []).append(party)
                groups.append(group)
        self._reach = Reach(groups, budget)
        self._along_names = NamedReach(self._reach, budget)

    def freed_by(self, actor: Actor) -> list[PartyName]:
        """The parties in whose groups an actor may start a task."""
        if not self._parties:
            return []
        own, led = actor.names_reached(False), actor.led_by()
        if not (own.any_code or own.any_name) and _STARTING.isdisjoint(own.names | led.names):
            return []
        roots = (*actor.roots, *own.global_values, *led.handed_on)
        along = self._along_names.held(roots, led.names)
        held = self._parties.keys() if along.beyond else self._reach.held(roots, ends=True).union(along.targets)
        return list(dict.fromkeys(party for group in sorted(held) for party in self._parties[group]))
