"""Finds what may close a channel or stop a server that a suspect depends on, cancel all tasks, or end the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import NEVER
from stilltrue.runtime.look.suspects import only_servers_of, owners_of
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.kinds.acceptors import acceptors
from stilltrue.runtime.look.ways_out.kinds.closing.closers import ANYTHING, Closer, closers, closers_after_calls, signal_closers
from stilltrue.runtime.look.ways_out.named_reach import BEYOND, NamedReach
from stilltrue.runtime.look.ways_out.reach import Reach
from stilltrue.runtime.waits.wait import SeenWait


class Closing:
    """The search of one look for closers. ``open_calls``: gRPC's own objects; ``share_waits``: waits for shares, read again."""

    def __init__(
        self,
        places: Places,
        analysis: ProgressAnalysis,
        budget: Budget,
        open_calls: Iterable[Any],
        share_waits: Mapping[PartyName, SeenWait | None],
    ) -> None:
        self._places = places
        self._analysis = analysis
        self._budget = budget
        self._open_calls = open_calls
        self._share_waits = share_waits

    def find(self, found: Iterable[Found]) -> None:
        """Add each closer that these suspects' waits depend on to their ways out."""
        found = list(found)
        owned: dict[int, list[Found]] = {}
        targets = []
        for one in found:
            for owner in compat.with_proxies(self._owners_of(one)):
                owned.setdefault(id(owner), []).append(one)
                targets.append(owner)
        reach = Reach(targets, self._budget)
        along_names = NamedReach(reach, self._budget)
        for closer in (
            *closers(self._places, self._analysis, self._budget),
            *closers_after_calls(self._open_calls),
            *signal_closers(self._places.loops()),
            *(acceptors(self._places, self._analysis) if any(only_servers_of(one.place) for one in found) else ()),
        ):
            if not self._budget.large_step():
                break
            held: set[int] = set()
            if targets and closer.roots:
                along = along_names.held(closer.roots, closer.names)
                held = reach.held(closer.roots, ends=True).union(along.targets)
                self._doubt(closer, found if along.beyond else ())
            everything = any(root is ANYTHING for root in closer.roots)
            hit = [one for owner in (owned if everything else held) for one in owned[owner]]
            if closer.process:
                hit = list(found)
            if closer.tasks is not None:
                hit += [one for one in found if one.place.task is not None and one.place.task.get_loop() is closer.tasks]
            self._add(closer, [one for one in hit if closer.owner not in self._excluded(one)])

    def _excluded(self, one: Found) -> tuple[Any, ...]:
        """The suspect's own thread or task, and library helpers that close nothing by themselves."""
        return (one.place.task or one.place.ident, *one.helpers)

    def _owners_of(self, one: Found) -> list[Any]:
        above = (self._places.of_task(task, self._places.party_of(task)) for task in one.awaiters)
        wait = None if one.place.party is None else self._share_waits.get(one.place.party)
        own = owners_of(one.place, self._places) + ([] if wait is None else list(wait.owners))
        return own + [owner for place in above for owner in owners_of(place, self._places)]

    def _doubt(self, closer: Closer, suspects: Iterable[Found]) -> None:
        """The closer's code leads to more objects than a look reads, among which may be what it closes."""
        for one in suspects:
            if closer.owner not in self._excluded(one) and closer.progress().by_itself:
                one.doubt = one.doubt or f"{closer.text}: its code {BEYOND}"

    def _add(self, closer: Closer, hit: list[Found]) -> None:
        progress = closer.progress() if hit else NEVER
        for one in hit:
            if progress.by_itself:
                one.add_way_out(closer.text, by=closer.owner)
            else:
                one.add_ways_out(closer.text, progress.parties - {one.place.party})
