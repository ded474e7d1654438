"""Makes an agent's locks, semaphores and queues: ``agent.Lock()`` for threads, ``agent.aio.Lock()`` for tasks."""

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
    """Make the two ends of a queue: getters wait for items, putters for room."""
    getters = QueueEnd(session, tuple(map(PartyName, producers)))
    putters = QueueEnd(session, tuple(map(PartyName, consumers)))
    resource = session.parties.name_resource("queue", name, getters)
    getters.what, putters.what = f"an item of {resource}", f"room in {resource}"
    return getters, putters


class ThreadLocks:
    """Makes locks, semaphores and queues for threads."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def lock(self, name: str, owner_releases: bool) -> locks.Lock:
        """Make a recorded ``threading.Lock()``."""
        return locks.Lock(ResourceRecord(self._session, "lock", name, 1, owner_releases=owner_releases))

    def rlock(self, name: str) -> locks.RLock:
        """Make a recorded ``threading.RLock()``."""
        return locks.RLock(ResourceRecord(self._session, "lock", name, 1, owner_releases=True, reentrant=True))

    def semaphore(self, value: int, name: str, owner_releases: bool) -> locks.Semaphore:
        """Make a recorded ``threading.Semaphore(value)``."""
        return locks.Semaphore(ResourceRecord(self._session, "semaphore", name, value, owner_releases=owner_releases), value)

    def queue(self, maxsize: int, name: str, producers: Iterable[str], consumers: Iterable[str]) -> locks.Queue:
        """Make a recorded ``queue.Queue(maxsize)``."""
        return locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))


class TaskLocks:
    """Makes locks, semaphores and queues for tasks (``agent.aio``)."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def Lock(self, name: str = "", *, owner_releases: bool = False) -> aio_locks.Lock:  # noqa: N802 - as asyncio's
        """Make a recorded ``asyncio.Lock()``; arguments as for :meth:`stilltrue.Agent.Lock`."""
        record = ResourceRecord(self._session, "lock", name, 1, owner_releases=owner_releases, of_tasks=True)
        return aio_locks.Lock(record, asyncio.Lock())

    def Semaphore(  # noqa: N802
        self, value: int = 1, name: str = "", *, owner_releases: bool = False
    ) -> aio_locks.Semaphore:
        """Make a recorded ``asyncio.Semaphore(value)``; arguments as for :meth:`stilltrue.Agent.Semaphore`."""
        record = ResourceRecord(self._session, "semaphore", name, value, owner_releases=owner_releases, of_tasks=True)
        return aio_locks.Semaphore(record, asyncio.Semaphore(value))

    def Queue(  # noqa: N802
        self, maxsize: int = 0, name: str = "", *, producers: Iterable[str] = (), consumers: Iterable[str] = ()
    ) -> aio_locks.Queue:
        """Make a recorded ``asyncio.Queue(maxsize)``; arguments as for :meth:`stilltrue.Agent.Queue`."""
        return aio_locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))
