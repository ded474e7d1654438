"""The end of this process: rules 2 and 3 of :mod:`~stilltrue.runtime.waits.resolvers.processes`."""

from __future__ import annotations

import os
import threading
import time

from stilltrue.protocol.report import Hold
from stilltrue.runtime.introspection.linux.child_processes import joined_at, process_at
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.resolvers.processes import name_of

AGAIN_SECONDS = 1.0
"""How long it counts that the parent is, or is not, a member."""


class OwnEnd:
    """This process as its parent may wait for it."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: tuple[int, str | None] = (0, None)
        self._again = float("-inf")

    def search(self) -> None:
        """Find out whether the parent is a member: not done at a cut, since the parent may have many descriptors."""
        if time.monotonic() >= self._again:
            self._again = time.monotonic() + AGAIN_SECONDS
            parent, own = process_at(os.getppid()), process_at(os.getpid())
            waits = parent is not None and own is not None and joined_at(parent) is not None
            self._known = os.getpid(), name_of(own) if waits and own is not None else None

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """Rule 3: the main thread's party, if the parent is a member."""
        pid, name = self._known
        if name is None or pid != os.getpid():
            return ()
        ident = threading.main_thread().ident
        party = None if ident is None else view.party_of(ident)
        return () if party is None else (Hold(party=party, resource=name),)
