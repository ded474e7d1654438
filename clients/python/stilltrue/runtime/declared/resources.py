"""The record of one lock, semaphore or queue: its holders and waiters, and whether its waits can be relied on.

1. A party holds a share only if it is bound to release it: it acquired it with ``with`` (or ``async with``), or
   nobody else can give it back (``RLock``), or the application says so (``owner_releases``). Any other share (taken with
   ``acquire``, with ``__enter__`` called outright, or on an ``ExitStack``, which may be closed elsewhere) is held by nobody
   known: somebody may give it back at any moment, so no wait for it lasts forever.
2. A share is taken before it is recorded, and its record is dropped before it is given back. So at no cut is a free share
   recorded as held.
3. Whose owner has ended, and could not give it back: it is left behind (:mod:`~stilltrue.runtime.owned_shares`).
4. Released by a party that holds none, while no unknown party does, it is a signal: from then on its waits count for nothing.
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

        ``reentrant``: nobody but the owner can release it. ``of_tasks``: its holders are tasks.
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
        """Whether its waits are recorded there."""
        return self._session is session

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """The current party waits for a share; None if that is not recorded, so that it counts as active."""
        if self._signals:
            return None
        live = self._session.live
        try:
            self._check_process()
            party = self._session.parties.now()
            return live.waits(party, (ResourceTarget(resource=self.resource),), timeout=timeout, what=self.resource)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a lock is awaited")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """The wait ended without a share."""
        self._session.end_wait(wait)

    def took(self, wait: WaitNumber | None = None, *, bound: bool = False) -> None:
        """The current party has a share now; ``bound``: it is the one that will release it (rule 1)."""
        live = self._session.live
        try:
            self._check_process()
            if not (bound or self._owner_releases):
                self._unknown += 1
                self.end_wait(wait)
                return
            party = self._session.parties.now()
            self._holders.append(party)
            if self._reentrant or not bound:
                key = self._session.owned.begin((party, self.resource), by_task=self._of_tasks)
                self._owned.setdefault(party, []).append(key)
            if not self._signals:
                live.holds(party, self.resource, self._capacity, wait)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a lock is taken")
            self.end_wait(wait)

    def gives_back(self, *, bound: bool = False) -> bool:
        """The current party is about to release a share; returns whether it held that share itself.

        ``bound``: it leaves a ``with`` block; otherwise it releases a share without a known holder, if there is one.
        """
        try:
            self._check_process()
            party = self._session.parties.now()
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
            self._session.live.report_failure("a lock is given back")
        return False

    def _signal(self) -> None:
        """Rule 4: any party may release it, so none counts as its holder."""
        self._signals = True
        for holder in self._holders:
            self._disown(holder)
            self._session.live.releases(holder, self.resource)

    def _disown(self, party: PartyName, left: int = 0) -> None:
        """No more than ``left`` of the shares of ``party`` are its own alone."""
        keys = self._owned.get(party, [])
        while len(keys) > left:
            self._session.owned.end(keys.pop())
        if not keys:
            self._owned.pop(party, None)

    def _check_process(self) -> None:
        """In a forked child it is the child's own resource; shares held by the parent's threads will never be released."""
        if self._process != self._session.parties.process:
            self._begin(unknown=self._unknown + len(self._holders))

    def _begin(self, unknown: int) -> None:
        """Make it a resource of this process; ``unknown`` shares have no known holder."""
        parties = self._session.parties
        self._process: ProcessName = parties.process
        self._holders: list[PartyName] = []
        self._owned: dict[PartyName, list[object]] = {}
        self._unknown = unknown
        self.resource = parties.name_resource(self._kind, self._name, self)


class QueueEnd:
    """The waiters at one end of a queue; they wait for any of the parties declared to serve it from the other end."""

    def __init__(self, session: Session, others: tuple[PartyName, ...]) -> None:
        """``others`` are all parties that can end a wait here; if none are declared, no wait is recorded."""
        self._session = session
        self._among = tuple(PartyTarget(party=other) for other in others)
        self.what = ""
        """What is awaited here, as text."""
        self._waiting: dict[WaitNumber, None] = {}

    def begin_wait(self, timeout: float | None = None) -> WaitNumber | None:
        """The current party waits."""
        if not self._among:
            return None
        live = self._session.live
        try:
            wait = live.waits(self._session.parties.now(), self._among, timeout=timeout, what=self.what)
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
        """A party at the other end has acted: any waiter here may go on, so none counts as waiting."""
        for wait in list(self._waiting):
            self.end_wait(wait)
