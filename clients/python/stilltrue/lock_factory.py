"""Makes the locks, semaphores and queues that an agent hands out: ``agent.Lock()`` and, for tasks, ``agent.aio.Lock()``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from stilltrue.aio import locks as aio_locks
from stilltrue.model import PartyName
from stilltrue.runtime.declared.resources import QueueEnd, ResourceRecord
from stilltrue.runtime.session import Session
from stilltrue.sync import locks


def make_queue_ends(
    session: Session, name: str, producers: Iterable[str], consumers: Iterable[str]
) -> tuple[QueueEnd, QueueEnd]:
    """The two ends of a queue: one waits for items, the other for room."""
    getters = QueueEnd(session, tuple(map(PartyName, producers)))
    putters = QueueEnd(session, tuple(map(PartyName, consumers)))
    resource = session.parties.name_resource("queue", name, getters)
    getters.what, putters.what = f"an item of {resource}", f"room in {resource}"
    return getters, putters


class ForThreads:
    """Makes objects for threads."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def lock(self, name: str, owner_releases: bool) -> locks.Lock:
        """As ``threading.Lock()``."""
        return locks.Lock(ResourceRecord(self._session, "lock", name, 1, owner_releases=owner_releases))

    def rlock(self, name: str) -> locks.RLock:
        """As ``threading.RLock()``."""
        return locks.RLock(ResourceRecord(self._session, "lock", name, 1, owner_releases=True, reentrant=True))

    def semaphore(self, value: int, name: str, owner_releases: bool) -> locks.Semaphore:
        """As ``threading.Semaphore(value)``."""
        return locks.Semaphore(ResourceRecord(self._session, "semaphore", name, value, owner_releases=owner_releases), value)

    def queue(self, maxsize: int, name: str, producers: Iterable[str], consumers: Iterable[str]) -> locks.Queue:
        """As ``queue.Queue(maxsize)``."""
        return locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))


class ForTasks:
    """Makes objects for tasks: ``agent.aio``."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def Lock(self, name: str = "", *, owner_releases: bool = False) -> aio_locks.Lock:  # noqa: N802 - as asyncio's
        """As ``asyncio.Lock()``; ``owner_releases`` as in :meth:`stilltrue.Agent.Lock`."""
        record = ResourceRecord(self._session, "lock", name, 1, owner_releases=owner_releases, of_tasks=True)
        return aio_locks.Lock(record, asyncio.Lock())

    def Semaphore(  # noqa: N802
        self, value: int = 1, name: str = "", *, owner_releases: bool = False
    ) -> aio_locks.Semaphore:
        """As ``asyncio.Semaphore(value)``; ``owner_releases`` as in :meth:`stilltrue.Agent.Lock`."""
        record = ResourceRecord(self._session, "semaphore", name, value, owner_releases=owner_releases, of_tasks=True)
        return aio_locks.Semaphore(record, asyncio.Semaphore(value))

    def Queue(  # noqa: N802
        self, maxsize: int = 0, name: str = "", *, producers: Iterable[str] = (), consumers: Iterable[str] = ()
    ) -> aio_locks.Queue:
        """As ``asyncio.Queue(maxsize)``; ``producers`` and ``consumers`` are all the parties (full names) at its ends."""
        return aio_locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))
