"""Actors that may add workers to the pool in which a suspect serves. New workers take its queued items, whatever it waits for.

Rules:

1. An actor counts if it can reach the executor and uses names that only the executor's own code uses, as for any queued item
   (:mod:`~stilltrue.runtime.waits.resolvers.executors`). Reading the pool's size or queue length does not count.
2. A method of a server counts only if it names them outright: many handlers import or look up something by a computed name.
3. A function of a library for databases that nobody names (one in its registry, say) counts only if it carries the executor.
   Reading the thousands of functions of an ORM took most of a look.
4. An executor whose own class grows it on submit, or starts threads there, grows with the next request from any caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime.introspection.origins import is_application, is_database_library
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.reachable_names import names_of_application
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.kinds.releasers import Releasers
from stilltrue.runtime.waits.resolvers.executors import GROWING, executor_of
from stilltrue.runtime.waits.wait import SeenWait

_STARTING_THREADS = frozenset({"Thread", "start_new_thread"})


class Growers:
    """Finds actors that may enlarge the suspects' pools."""

    def __init__(self, found: Mapping[PartyName, Found], budget: Budget) -> None:
        """``found``: the suspects by party; those whose pools grow by themselves are marked."""
        waits: dict[PartyName, SeenWait] = {}
        for party, one in found.items():
            executor = executor_of(one.place.frames)
            if executor is None:
                continue
            waits[party] = SeenWait(on=executor, enders=None, ended_through=(executor,), ending_names=GROWING)
            if _grows_by_itself(executor):
                one.grown_by = f"{type(executor).__qualname__}, which grows on submit"
        self._undoers = Releasers(waits, {}, budget, through_globals=_is_outside_databases) if waits else None

    def grown_by(self, actor: Actor, *, by_name: bool = False) -> list[PartyName]:
        """The parties whose pool an actor may enlarge. ``by_name``: only if its code names one of the executor's own names."""
        if self._undoers is None or (by_name and GROWING.isdisjoint(actor.names_reached(False).names)):
            return []
        return self._undoers.freed_by(actor)

    def grown_by_calls(self, actors: Iterable[Actor]) -> Iterator[tuple[Actor, PartyName]]:
        """As :meth:`Releasers.freed_by_calls`."""
        return iter(()) if self._undoers is None else self._undoers.freed_by_calls(actors)


def _is_outside_databases(code: CodeType) -> bool:
    return not is_database_library(code)


def _grows_by_itself(executor: Any) -> bool:
    """Rule 4."""
    submit: Any = type(executor).submit
    if submit is ThreadPoolExecutor.submit or not is_application(submit.__code__):
        return False
    names = names_of_application(submit.__code__, submit.__globals__, executor)
    return not (GROWING | _STARTING_THREADS).isdisjoint(names)
