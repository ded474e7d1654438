"""The record of one lock, semaphore or queue: who holds it, who waits for it, and whether its waits can be believed.

Order is what makes it safe: a share is taken before it is recorded, and its record is dropped before it is given back. So at no
cut is a free share recorded as held.
"""

from __future__ import annotations

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import PartyTarget, ResourceTarget
from stilltrue.runtime.session import Session


class ResourceRecord:
    """The ``capacity`` shares of one resource of this process."""

    def __init__(self, session: Session, kind: str, name: str, capacity: int) -> None:
        """``kind`` is ``lock``, ``semaphore`` or ``queue``; ``name`` is made unique in the process."""
        self._session = session
        self._capacity = max(1, capacity)
        self.resource = session.parties.name_resource(kind, name)
        self._holders: list[PartyName] = []
        self._signals = capacity < 1

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """Who runs this line waits for a share; None when that is not recorded: then it counts as going on."""
        if self._signals:
            return None
        live = self._session.live
        try:
            party = self._session.parties.now()
            return live.waits(party, (ResourceTarget(resource=self.resource),), timeout=timeout, what=self.resource)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a lock is awaited")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """The wait ended without a share."""
        self._session.end_wait(wait)

    def took(self, wait: WaitNumber | None = None) -> None:
        """Who runs this line has a share now."""
        live = self._session.live
        try:
            party = self._session.parties.now()
            self._holders.append(party)
            live.holds(party, self.resource, self._capacity, wait)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a lock is taken")
            self.end_wait(wait)

    def gives_back(self) -> None:
        """Who runs this line is about to give a share back; one that holds none makes it a signal: waits count for nothing."""
        live = self._session.live
        try:
            party = self._session.parties.now()
            if party not in self._holders:
                self._signals = True
                party = self._holders[0] if self._holders else party
            if party in self._holders:
                self._holders.remove(party)
                live.releases(party, self.resource)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a lock is given back")


class QueueEnd:
    """Who waits at one end of a queue, for any of the parties that were declared to serve it from the other end."""

    def __init__(self, session: Session, others: tuple[PartyName, ...], what: str) -> None:
        """``others`` are all that can end a wait here; when none were declared, no wait is recorded."""
        self._session = session
        self._among = tuple(PartyTarget(party=other) for other in others)
        self._what = what
        self._waiting: dict[WaitNumber, None] = {}

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """Who runs this line waits."""
        if not self._among:
            return None
        live = self._session.live
        try:
            wait = live.waits(self._session.parties.now(), self._among, timeout=timeout, what=self._what)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a queue is awaited")
            return None
        self._waiting[wait] = None
        return wait

    def end_wait(self, wait: WaitNumber | None) -> None:
        """The wait is over."""
        if wait is not None:
            self._waiting.pop(wait, None)
            self._session.end_wait(wait)

    def stirs(self) -> None:
        """Somebody at the other end has acted: whoever waits here may go on, so nobody counts as waiting."""
        for wait in list(self._waiting):
            self.end_wait(wait)
