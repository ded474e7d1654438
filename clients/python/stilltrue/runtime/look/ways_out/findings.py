"""The result of a look for one suspect: the ways out of its wait, its end time, and doubts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.requests.look import WayOut
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place

WAYS_OUT_MAX = 64
"""Maximum number of ways out reported per suspect; beyond it the suspect is in doubt."""


@dataclass(slots=True)
class Found:
    """The findings for one suspect. A timer ends its wait at ``until`` (epoch); ``doubt`` is the reason why this is unknown.

    ``handles``: the objects that end its wait when cancelled or set. ``awaiters``: the tasks that await its own. ``contexts``:
    those of the call it serves; cancelling one frees its caller. ``grown_by``: who may add workers to the pool in which it
    serves. ``helpers``: the library's own threads and tasks, which never end its wait by themselves.
    """

    place: Place
    handles: list[Any]
    awaiters: list[Task] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)
    ways_out: dict[object, WayOut] = field(default_factory=dict)
    until: float | None = None
    doubt: str = ""
    interruptible: bool = False
    grown_by: str = ""
    helpers: tuple[Any, ...] = ()

    def add_way_out(self, text: str, party: PartyName | None = None, by: object = None) -> None:
        """Add a way out, once per actor ``by``. Past the bound only open ones are kept, and the suspect is in doubt."""
        key = party or by or text
        if key in self.ways_out or len(self.ways_out) < WAYS_OUT_MAX or party is None:
            self.ways_out.setdefault(key, WayOut(text=text, party=party))
        else:
            self.doubt = self.doubt or f"more than {WAYS_OUT_MAX} parties may end its wait"

    def add_ways_out(self, text: str, parties: Iterable[PartyName]) -> None:
        """Add a way out by each of the parties."""
        for party in sorted(parties):
            self.add_way_out(text, party)

    def end_at(self, when: float) -> None:
        """The wait ends at ``when`` at the latest."""
        self.until = when if self.until is None else min(self.until, when)
