"""Who may undo what a suspect waits behind, by names of its own: release a lock that another has, let an executor grow.

Who completes or cancels a future is looked for in the same way.

And who may interrupt the main thread by sending its own process a signal.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.ending import ended_by
from stilltrue.runtime.look.enders.actors import Actor
from stilltrue.runtime.look.enders.kinds.exits import ITSELF, SENDING
from stilltrue.runtime.look.enders.reach import Reach
from stilltrue.runtime.seen.wait import SeenWait

_INTERRUPTING = frozenset({"interrupt_main", "raise_signal", "pthread_kill", "PyErr_SetInterrupt", "PyErr_SetInterruptEx"})
_COMPLETING = frozenset({"cancel", "set_result", "set_exception"})
_THREADS = frozenset({"enumerate", "current_thread", "main_thread", "_active"})


class Undoers:
    """Finds who may undo what some parties wait behind."""

    def __init__(self, waits: Mapping[PartyName, SeenWait], handles: Mapping[PartyName, Iterable[Any]], budget: Budget) -> None:
        """``waits`` by the party that waits; ``handles``: what ends its wait when it is completed or cancelled."""
        self._waiting: dict[int, list[PartyName]] = {}
        targets: dict[frozenset[str], list[Any]] = {}
        for party, wait in waits.items():
            for thing in wait.undone:
                self._waiting.setdefault(id(thing), []).append(party)
                targets.setdefault(wait.by, []).append(thing)
        for party, those in handles.items():
            for thing in those:
                if issubclass(type(thing), Future):
                    self._waiting.setdefault(id(thing), []).append(party)
                    targets.setdefault(_COMPLETING, []).append(thing)
        self._by = targets
        self._searches = [
            (by, Reach(those, budget, functools.partial(ended_by, by=by), outright=False)) for by, those in targets.items()
        ]
        self._calls = {
            by: Reach(those, budget, functools.partial(ended_by, by=by, named=True), outright=False)
            for by, those in targets.items()
        }

    def undone_by(self, actor: Actor) -> list[PartyName]:
        """The parties whose waits an actor may end so."""
        found: dict[PartyName, None] = {}
        for by, reach in self._searches:
            if self._are_its_own(by, actor):
                continue
            said = actor.names_reached(True)
            speaks = said.unread or not by.isdisjoint(said.names)
            if said.anything or (speaks and said.everywhere):
                found.update((party, None) for thing in self._by[by] for party in self._waiting[id(thing)])
                continue
            threads = compat.threads().values() if speaks and not _THREADS.isdisjoint(said.names) else ()
            own = () if actor.loose and not speaks else actor.roots  # what a module may still name of its own is named
            held = reach.held((*own, *actor.besides, *threads), ends=speaks)
            if speaks:
                held |= reach.held_by_name(said.named, ends=True)
            for thing in sorted(held | self._calls[by].held_by_name(said.named, ends=False)):  # what these end, and more
                found.update(dict.fromkeys(self._waiting[thing]))
        return list(found)

    def _are_its_own(self, by: frozenset[str], actor: Actor) -> bool:
        """Whether nobody but an actor itself waits for what is undone so: that is no way out of its wait."""
        if actor.party is None or actor.context:
            return False
        return all(party == actor.party for thing in self._by[by] for party in self._waiting[id(thing)])

    def undone_by_calls(self, actors: Iterable[Actor]) -> Iterator[tuple[Actor, PartyName]]:
        """Those that call what they have, whatever that is, and the parties whose waits they may end so."""
        for actor in actors:
            for held in sorted(held for reach in self._calls.values() for held in reach.held(actor.roots, ends=False)):
                yield from ((actor, party) for party in self._waiting[held])


def interrupts(names: frozenset[str]) -> bool:
    """Whether code that speaks of these may send its own process a signal."""
    return not _INTERRUPTING.isdisjoint(names) or not (ITSELF.isdisjoint(names) or SENDING.isdisjoint(names))
