"""Actors that may undo what blocks a suspect: release another party's lock, or let an executor grow.

Actors that complete or cancel a future, or interrupt the main thread by signalling their own process, are found here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import CodeType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_tracing_library
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.ending import ended_by
from stilltrue.runtime.look.code.system_operations import operations_given
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.kinds.exits import OWN_PROCESS, SENDING
from stilltrue.runtime.look.ways_out.reach import Reach
from stilltrue.runtime.waits.ending_operations import COMPLETING_OR_CANCELLING
from stilltrue.runtime.waits.holders.queues.queue_pools import called_by
from stilltrue.runtime.waits.wait import SeenWait

_INTERRUPTING = frozenset({"interrupt_main", "raise_signal", "pthread_kill", "PyErr_SetInterrupt", "PyErr_SetInterruptEx"})
_THREADS = frozenset({"enumerate", "current_thread", "main_thread", "_active"})


class Releasers:
    """Finds actors that may undo what blocks some parties."""

    def __init__(
        self,
        waits: Mapping[PartyName, SeenWait],
        handles: Mapping[PartyName, Iterable[Any]],
        budget: Budget,
        through_globals: Callable[[CodeType], bool] = lambda code: not is_tracing_library(code),
    ) -> None:
        """``waits``: by waiting party; ``handles``: the objects that end a party's wait when completed or cancelled.

        ``through_globals``: whether code that is called without being named may undo something through the globals it names.
        A tracer has hundreds of such functions in its registries, which end nothing of the program.
        """
        self._waiting: dict[int, list[PartyName]] = {}
        self._named: dict[frozenset[str], list[PartyName]] = {}
        targets: dict[frozenset[str], list[Any]] = {}
        for party, wait in waits.items():
            if wait.ending_names_anywhere:
                self._named.setdefault(wait.ending_names_anywhere, []).append(party)
            for thing in wait.ended_through:
                self._waiting.setdefault(id(thing), []).append(party)
                targets.setdefault(wait.ending_names, []).append(thing)
        for party, those in handles.items():
            for thing in those:
                if issubclass(type(thing), Future):
                    self._waiting.setdefault(id(thing), []).append(party)
                    targets.setdefault(COMPLETING_OR_CANCELLING, []).append(thing)
        self._by = targets
        self._searches = [
            (by, Reach(those, budget, functools.partial(ended_by, by=called_by(by)), named_targets_count=False))
            for by, those in targets.items()
        ]
        self._calls = {
            by: Reach(
                those, budget, functools.partial(ended_by, by=called_by(by), named=through_globals), named_targets_count=False
            )
            for by, those in targets.items()
        }

    def freed_by(self, actor: Actor) -> list[PartyName]:
        """The parties whose waits an actor may end this way."""
        found: dict[PartyName, None] = {}
        for by, parties in self._named.items():
            reachable = actor.names_reached(True)
            given = (operation for root in actor.roots for operation in operations_given(root))
            if reachable.any_code or reachable.any_name or not by.isdisjoint(reachable.names) or not by.isdisjoint(given):
                found.update(dict.fromkeys(parties))
        for by, reach in self._searches:
            if self._is_only_waiter(by, actor):
                continue
            reachable = actor.names_reached(True)
            mentions = reachable.any_name or not by.isdisjoint(reachable.names)
            if reachable.any_code or (mentions and reachable.any_object):
                found.update((party, None) for thing in self._by[by] for party in self._waiting[id(thing)])
                continue
            threads = compat.threads().values() if mentions and not _THREADS.isdisjoint(reachable.names) else ()
            roots = actor.roots if actor.undoes_through is None else actor.undoes_through(by)
            own = () if actor.borrowed and not mentions else roots  # a module's globals count only if named
            held = reach.held((*own, *actor.extra_roots, *threads), ends=mentions)
            if mentions:
                held |= reach.held_by_name(reachable.global_values, ends=True)
            through = actor.calls_through
            named = reachable.global_values if through is None else through(by, reachable.global_values)
            called = self._calls[by].held_by_name(named, ends=False)
            for thing in sorted(held | called):
                found.update(dict.fromkeys(self._waiting[thing]))
        return list(found)

    def _is_only_waiter(self, by: frozenset[str], actor: Actor) -> bool:
        """Whether the actor is the only waiter for these objects, so that it is not a way out of another wait."""
        if actor.party is None or actor.is_context_callback:
            return False
        return all(party == actor.party for thing in self._by[by] for party in self._waiting[id(thing)])

    def freed_by_calls(self, actors: Iterable[Actor]) -> Iterator[tuple[Actor, PartyName]]:
        """The actors that may end waits by calling whatever they hold, with the parties affected."""
        for actor in actors:
            for held in sorted(held for reach in self._calls.values() for held in reach.held(actor.roots, ends=False)):
                yield from ((actor, party) for party in self._waiting[held])


def signals_own_process(names: frozenset[str]) -> bool:
    """Whether code with these names may send its own process a signal."""
    return not _INTERRUPTING.isdisjoint(names) or not (OWN_PROCESS.isdisjoint(names) or SENDING.isdisjoint(names))
