"""Who may undo what a suspect waits behind, by names of its own: release a lock that another has, let an executor grow.

And who may interrupt the main thread by sending its own process a signal.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.spoken import ended_by
from stilltrue.runtime.look.enders.actors import Actor
from stilltrue.runtime.look.enders.reach import Reach
from stilltrue.runtime.seen.wait import SeenWait

_INTERRUPTING = frozenset({"interrupt_main", "raise_signal", "pthread_kill", "PyErr_SetInterrupt", "PyErr_SetInterruptEx"})
_KILLING = frozenset({"kill", "killpg"})
_TO_ITSELF = frozenset({"getpid", "getpgrp", "getpgid"})


class Undoers:
    """Finds who may undo what some parties wait behind."""

    def __init__(self, waits: Mapping[PartyName, SeenWait], budget: Budget) -> None:
        """``waits`` by the party that waits."""
        self._waiting: dict[int, list[PartyName]] = {}
        targets: dict[frozenset[str], list[Any]] = {}
        for party, wait in waits.items():
            for thing in wait.undone:
                self._waiting.setdefault(id(thing), []).append(party)
                targets.setdefault(wait.by, []).append(thing)
        self._searches = [
            (by, Reach(those, budget, functools.partial(ended_by, by=by), outright=False)) for by, those in targets.items()
        ]

    def undone_by(self, actor: Actor) -> list[PartyName]:
        """The parties whose waits an actor may end so."""
        found: dict[PartyName, None] = {}
        for by, reach in self._searches:
            said = actor.spoken(True)
            speaks = not by.isdisjoint(said.names)
            roots = (*actor.roots, *said.named) if speaks else actor.roots
            for thing in sorted(reach.held(roots, ends=speaks)):
                found.update(dict.fromkeys(self._waiting[thing]))
        return list(found)


def interrupts(names: frozenset[str]) -> bool:
    """Whether code that speaks of these may send its own process a signal."""
    return not _INTERRUPTING.isdisjoint(names) or not (_TO_ITSELF.isdisjoint(names) or _KILLING.isdisjoint(names))
