"""The record of one lock, semaphore or queue: its holders and waiters, and whether its waits are reliable.

1. A party holds a share only if it is bound to release it: it acquired it by ``with`` (or ``async with``), or no other party
   can release it (``RLock``), or the application says so (``owner_releases``). Any other share (acquired by ``acquire``, by an
   explicit ``__enter__`` call, or on an ``ExitStack``, which may be closed elsewhere) has an unknown holder: any party may
   release it at any moment, so no wait for it lasts forever.
2. A share is taken before it is recorded, and its record is removed before it is released. So no cut shows a free share as
   held.
3. A share whose owner has ended, and which no other party can release, is left behind
   (:mod:`~stilltrue.runtime.owned_shares`).
4. If a party releases a share while neither it nor an unknown party holds one, the resource is a signal: its waits are no
   longer recorded.
"""

from __future__ import annotations

from stilltrue.model import PartyName, ProcessName, WaitNumber
from stilltrue.protocol.report import PartyTarget, ResourceTarget
from stilltrue.runtime.session import Session


class ResourceRecord:
    """The ``capacity`` shares of one resource of this process."""

    def __init__(
        self,
        session: Session,
        kind: str,
        name: str,
        capacity: int,
        *,
        owner_releases: bool = False,
        reentrant: bool = False,
        of_tasks: bool = False,
    ) -> None:
        """``kind`` is ``lock`` or ``semaphore``; ``name`` is made unique in the process. ``owner_releases``: see rule 1.

        ``reentrant``: only the owner can release it. ``of_tasks``: its holders are tasks.
        """
        self._reentrant = reentrant
        self._of_tasks = of_tasks
        self._session = session
        self._kind = kind
        self._name = name
        self._capacity = max(1, capacity)
        self._owner_releases = owner_releases
        self._signals = capacity < 1
        self._begin(unknown=0)

    def is_of(self, session: Session) -> bool:
        """Whether ``session`` records its waits."""
        return self._session is session

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """The current party begins to wait for a share. None: the wait is not recorded, so the party counts as active."""
        if self._signals:
            return None
        live = self._session.live
        try:
            self._check_process()
            party = self._session.parties.current()
            return live.waits(party, (ResourceTarget(resource=self.resource),), timeout=timeout, what=self.resource)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("waiting for a lock")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """A wait ended without a share."""
        self._session.end_wait(wait)

    def acquired(self, wait: WaitNumber | None = None, *, bound: bool = False) -> None:
        """The current party took a share; ``bound``: it is bound to release it (rule 1)."""
        live = self._session.live
        try:
            self._check_process()
            if not (bound or self._owner_releases):
                self._unknown += 1
                self.end_wait(wait)
                return
            party = self._session.parties.current()
            self._holders.append(party)
            if self._reentrant or not bound:
                key = self._session.owned.begin((party, self.resource), by_task=self._of_tasks)
                self._owned.setdefault(party, []).append(key)
            if not self._signals:
                live.holds(party, self.resource, self._capacity, wait)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("taking a lock")
            self.end_wait(wait)

    def releases(self, *, bound: bool = False) -> bool:
        """The current party is about to release a share; return whether it was recorded as its holder.

        ``bound``: it exits a ``with`` block; otherwise it releases a share with an unknown holder, if there is one.
        """
        try:
            self._check_process()
            party = self._session.parties.current()
            if party in self._holders and (bound or not self._unknown):
                self._holders.remove(party)
                self._disown(party, self._holders.count(party))
                self._session.live.releases(party, self.resource)
                return True
            if self._unknown:
                self._unknown -= 1
            else:
                self._signal()
        except Exception:  # noqa: BLE001 - fail open
            self._session.live.report_failure("releasing a lock")
        return False

    def _signal(self) -> None:
        """Rule 4: any party may release it, so none counts as its holder."""
        self._signals = True
        for holder in self._holders:
            self._disown(holder)
            self._session.live.releases(holder, self.resource)

    def _disown(self, party: PartyName, left: int = 0) -> None:
        """Reduce the shares that only ``party`` can release to ``left``."""
        keys = self._owned.get(party, [])
        while len(keys) > left:
            self._session.owned.end(keys.pop())
        if not keys:
            self._owned.pop(party, None)

    def _check_process(self) -> None:
        """After a fork, make it a resource of the child; shares that the parent's threads held have unknown holders."""
        if self._process != self._session.parties.process:
            self._begin(unknown=self._unknown + len(self._holders))

    def _begin(self, unknown: int) -> None:
        """Make it a resource of this process; ``unknown`` is the number of shares with unknown holders."""
        parties = self._session.parties
        self._process: ProcessName = parties.process
        self._holders: list[PartyName] = []
        self._owned: dict[PartyName, list[object]] = {}
        self._unknown = unknown
        self.resource = parties.name_resource(self._kind, self._name, self)


class QueueEnd:
    """The waiters at one end of a queue. They wait for any of the parties declared to serve the other end."""

    def __init__(self, session: Session, others: tuple[PartyName, ...]) -> None:
        """``others``: all parties that can end a wait here; if there are none, no wait is recorded."""
        self._session = session
        self._among = tuple(PartyTarget(party=other) for other in others)
        self.what = ""
        """The text of a wait."""
        self._waiting: dict[WaitNumber, None] = {}

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """The current party begins to wait."""
        if not self._among:
            return None
        live = self._session.live
        try:
            wait = live.waits(self._session.parties.current(), self._among, timeout=timeout, what=self.what)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("waiting for a queue")
            return None
        self._waiting[wait] = None
        return wait

    def end_wait(self, wait: WaitNumber | None) -> None:
        """End a wait."""
        if wait is not None:
            self._waiting.pop(wait, None)
            self._session.end_wait(wait)

    def end_all_waits(self) -> None:
        """A party at the other end acted: any waiter here may go on, so none counts as waiting any more."""
        for wait in list(self._waiting):
            self.end_wait(wait)
