"""What a look finds for one suspect: the ways out of its wait, when that ends by itself, and what is in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.requests.look import WayOut
from stilltrue.runtime.introspection.places import Place
from stilltrue.runtime.introspection.tasks import Task

WAYS_OUT_MAX = 64
"""Ways out that are reported for one suspect; if there are more, it is in doubt."""


@dataclass(slots=True)
class Found:
    """What was found for one suspect: ``until`` (epoch) a timer ends its wait; ``doubt``: why this is unknown.

    ``handles`` are the objects that end its wait when they are cancelled or set; ``kin`` are the tasks that await its own;
    ``contexts`` are those of the call it serves: who cancels that frees its caller. ``grown_by``: who may give the pool in
    which it serves more workers.
    """

    place: Place
    handles: list[Any]
    kin: list[Task] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)
    ways_out: dict[object, WayOut] = field(default_factory=dict)
    until: float | None = None
    doubt: str = ""
    interruptible: bool = False
    grown_by: str = ""

    def add(self, text: str, party: PartyName | None = None, by: object = None) -> None:
        """One way out more, ``by`` somebody, once; beyond the bound there is doubt, and only open ones are kept."""
        key = party or by or text
        if key in self.ways_out or len(self.ways_out) < WAYS_OUT_MAX or party is None:
            self.ways_out.setdefault(key, WayOut(text=text, party=party))
        else:
            self.doubt = self.doubt or f"more than {WAYS_OUT_MAX} parties may end its wait"

    def end_at(self, when: float) -> None:
        """The wait ends at ``when`` at the latest."""
        self.until = when if self.until is None else min(self.until, when)
