"""The lock that a party holds in the block of an object of an application's class, according to the code of that class."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from stilltrue.runtime.waits.holders.held_locks import lock_inside
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front, targets
from tests.client.waits.resolvers.test_locks_of_tasks import waits_of

log = logging.getLogger(__name__)


class Mutex:
    def __init__(self) -> None:
        self._lock: Any = threading.Lock()

    def __enter__(self) -> Mutex:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Delegating(Mutex):
    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *reason: object) -> Any:
        return self._lock.__exit__(*reason)


class DelegatingAndCounting(Delegating):
    waiting = 0

    def __enter__(self) -> Any:
        self.waiting += 1
        try:
            self._lock.__enter__()
        finally:
            self.waiting -= 1


class Counting(Mutex):
    entries = 0

    def __enter__(self) -> Counting:
        self._lock.acquire()
        self.entries += 1
        return self


class Releasable(Mutex):
    def release(self) -> None:
        self._lock.release()


class AsyncMutex:
    def __init__(self) -> None:
        self._lock: Any = asyncio.Lock()

    async def __aenter__(self) -> AsyncMutex:
        await self._lock.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Trying(Mutex):
    def __enter__(self) -> Trying:
        self._lock.acquire(blocking=False)
        return self


class Sometimes(Mutex):
    taken = False

    def __enter__(self) -> Sometimes:
        if not self.taken:
            self._lock.acquire()
        return self


class Briefly(Mutex):
    def __enter__(self) -> Briefly:
        self._lock.acquire()
        self._lock.release()
        return self


class Calling(Mutex):
    def __enter__(self) -> Calling:
        self._lock.acquire()
        self.then()
        return self

    def then(self) -> None:
        """Call nothing."""


class Beginning(Mutex):
    entries = 0

    def __enter__(self) -> Beginning:
        begun = time.monotonic()
        note(self)
        self._lock.acquire()
        self.entries += 1
        waited = time.monotonic() - begun
        logging.debug("begun after %s", f"{waited} s")
        self.begin()
        return self

    def begin(self) -> None:
        if self.entries > 1:
            self.count()

    def count(self) -> None:
        log.debug("more than one")


class BeginningAsync:
    def __init__(self) -> None:
        self._lock: Any = asyncio.Lock()

    async def __aenter__(self) -> BeginningAsync:
        logging.debug("begins")
        await self._lock.acquire()
        logging.debug("begun")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def note(_: object) -> None:
    """The effect of this function is unknown to whoever calls it."""


class Noting(Mutex):
    def __enter__(self) -> Noting:
        self._lock.acquire()
        note(self)
        return self


class NotingWithin(Beginning):
    def count(self) -> None:
        note(self)


class OfAnother(Mutex):
    def __init__(self) -> None:
        super().__init__()
        self.other = Calling()

    def __enter__(self) -> OfAnother:
        self._lock.acquire()
        self.other.then()
        return self


class SometimesBeginning(Beginning):
    def __enter__(self) -> SometimesBeginning:
        if self.entries:
            self._lock.acquire()
        self.begin()
        return self


class KeptFunction(Mutex):
    def __init__(self) -> None:
        super().__init__()
        self.then: Any = lambda: note(self)

    def __enter__(self) -> KeptFunction:
        self._lock.acquire()
        self.then()
        return self


class Renewed(Mutex):
    def renew(self) -> None:
        self._lock = threading.Lock()


class Unlocking(Mutex):
    def unlocked(self) -> None:
        self._lock.release()


class UnlockingByProperty(Mutex):
    @property
    def unlocked(self) -> None:
        self._lock.release()


class Keeping(Mutex):
    def __exit__(self, *_: object) -> None:
        """Keep the lock."""


class NotAwaiting(Mutex):
    def __init__(self) -> None:
        self._lock = asyncio.Lock()


class Facade(Mutex):
    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Facade:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Locking(Mutex):
    def lock(self) -> None:
        self._lock.acquire()

    def unlock(self) -> None:
        self._lock.release()

    def __enter__(self) -> Locking:
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()


class LockingAndReset(Locking):
    def reset(self) -> None:
        self.unlock()


class LockingOnce(Locking):
    def lock(self) -> None:
        self._lock.acquire(timeout=1)


@pytest.mark.parametrize(
    "kind",
    [
        *(Mutex, Delegating, DelegatingAndCounting, Counting, Releasable, AsyncMutex, Facade, Locking),
        *(Calling, Beginning, BeginningAsync),
    ],
)
def test_a_party_inside_the_block_holds_the_lock(kind: type) -> None:
    thing = kind()
    assert lock_inside(thing)[0] is thing._lock


@pytest.mark.parametrize(
    "kind",
    [
        *(Trying, Sometimes, Briefly, Renewed, Unlocking, UnlockingByProperty, Keeping, NotAwaiting, object),
        *(LockingAndReset, LockingOnce, Noting, NotingWithin, OfAnother, SometimesBeginning, KeptFunction),
    ],
)
def test_for_other_classes_the_holder_is_unknown(kind: type) -> None:
    assert lock_inside(kind())[0] is None


@pytest.mark.parametrize("kind", [Mutex, Delegating, DelegatingAndCounting])
def test_two_threads_in_the_blocks_of_objects_wait_for_each_other(front: Front, kind: type[Mutex]) -> None:
    first, second, met = kind(), kind(), threading.Barrier(2)

    def both(one: Mutex, other: Mutex) -> None:
        with one:
            met.wait()
            with other:
                pass

    def until_forced(*mutexes: Mutex) -> None:
        with suppress(RuntimeError):  # its lock is released from outside
            both(*mutexes)

    front.start("ada", until_forced, first, second)
    front.start("bob", until_forced, second, first)
    assert targets(front.seen("thread:ada")) == ["thread:bob"]
    assert targets(front.seen("thread:bob")) == ["thread:ada"]
    look = look_at(front.agent, front.report_when_still("ada", "bob"))
    assert [of(look, f"front/thread:{name}").ways_out for name in ("ada", "bob")] == [(), ()]
    first._lock.release()


@pytest.mark.parametrize("kind", [Mutex, threading.Lock])
def test_a_party_that_exits_its_block_explicitly_may_have_released_the_lock(front: Front, kind: Any) -> None:
    lock = kind()

    def hold() -> None:
        with lock:
            lock.__exit__(None, None, None)
            lock.__enter__()
            front.get(b"")

    front.hold(hold)
    assert front.waits_unseen(_enter, lock)
    front.let_go()


def _enter(lock: Any) -> None:
    with lock:
        pass


def test_a_task_in_the_block_of_an_object_holds_its_lock(front: Front) -> None:
    async def main() -> None:
        mutex = AsyncMutex()
        waiting = asyncio.create_task(_take(mutex), name="waiting")
        async with mutex:
            await asyncio.to_thread(report_when, front.agent, lambda report: bool(waits_of(report, "waiting")))
        await waiting

    front.start("loop", lambda: asyncio.run(main()))
    front.let_go()


async def _take(mutex: AsyncMutex) -> None:
    async with mutex:
        pass
