"""Makes the locks, semaphores and queues that an agent hands out: ``agent.Lock()`` and, for tasks, ``agent.aio.Lock()``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from stilltrue.aio import locks as aio_locks
from stilltrue.model import PartyName
from stilltrue.runtime.resources import QueueEnd, ResourceRecord
from stilltrue.runtime.session import Session
from stilltrue.sync import locks


def make_queue_ends(
    session: Session, name: str, producers: Iterable[str], consumers: Iterable[str]
) -> tuple[QueueEnd, QueueEnd]:
    """The two ends of a queue: who waits for items, and who for room."""
    resource = session.parties.name_resource("queue", name)
    getters = QueueEnd(session, tuple(map(PartyName, producers)), f"an item of {resource}")
    return getters, QueueEnd(session, tuple(map(PartyName, consumers)), f"room in {resource}")


class ForThreads:
    """Makes what threads share."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def lock(self, name: str) -> locks.Lock:
        """As ``threading.Lock()``."""
        return locks.Lock(ResourceRecord(self._session, "lock", name, 1))

    def rlock(self, name: str) -> locks.RLock:
        """As ``threading.RLock()``."""
        return locks.RLock(ResourceRecord(self._session, "lock", name, 1))

    def semaphore(self, value: int, name: str) -> locks.Semaphore:
        """As ``threading.Semaphore(value)``."""
        return locks.Semaphore(ResourceRecord(self._session, "semaphore", name, value), value)

    def queue(self, maxsize: int, name: str, producers: Iterable[str], consumers: Iterable[str]) -> locks.Queue:
        """As ``queue.Queue(maxsize)``."""
        return locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))


class ForTasks:
    """Makes what tasks share: ``agent.aio``."""

    def __init__(self, session: Session) -> None:
        """``session`` is the agent."""
        self._session = session

    def Lock(self, name: str = "") -> aio_locks.Lock:  # noqa: N802 - as asyncio's
        """As ``asyncio.Lock()``."""
        return aio_locks.Lock(ResourceRecord(self._session, "lock", name, 1), asyncio.Lock())

    def Semaphore(self, value: int = 1, name: str = "") -> aio_locks.Semaphore:  # noqa: N802
        """As ``asyncio.Semaphore(value)``."""
        return aio_locks.Semaphore(ResourceRecord(self._session, "semaphore", name, value), asyncio.Semaphore(value))

    def Queue(  # noqa: N802
        self, maxsize: int = 0, name: str = "", *, producers: Iterable[str] = (), consumers: Iterable[str] = ()
    ) -> aio_locks.Queue:
        """As ``asyncio.Queue(maxsize)``; ``producers`` and ``consumers`` are all the parties (full names) at its ends."""
        return aio_locks.Queue(maxsize, *make_queue_ends(self._session, name, producers, consumers))
