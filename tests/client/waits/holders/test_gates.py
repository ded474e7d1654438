"""Gates, made of a condition and a counter, flag or owner: a party waits for those that have raised the gate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.waits.holders.gates.gate_tests import Positive, keeps_waiting, wait_before
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from tests.client.look.worlds import look_at, of, report_when, serving
from tests.client.waits.conftest import Front, targets
from tests.client.waits.resolvers.test_locks_of_tasks import waits_of

FAR_SECONDS = 60.0


class ReadWriteLock:
    """Many readers or one writer, as commonly written; each variant has a subclass."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.readers = 0
        self.writing = False

    def acquire_read(self) -> None:
        with self.condition:
            self.condition.wait_for(lambda: not self.writing)
            self.readers += 1

    def release_read(self) -> None:
        with self.condition:
            self.readers -= 1
            if self.readers == 0:
                self.condition.notify_all()

    def acquire_write(self) -> None:
        with self.condition:
            while self.writing or self.readers > 0:
                self.condition.wait()
            self.writing = True

    def release_write(self) -> None:
        with self.condition:
            self.writing = False
            self.condition.notify_all()

    @contextmanager
    def read(self) -> Iterator[None]:
        self.acquire_read()
        try:
            yield
        finally:
            self.release_read()


class WithTimeout(ReadWriteLock):
    def acquire_write(self) -> None:
        with self.condition:
            while self.writing or self.readers > 0:
                self.condition.wait(20)
            self.writing = True


class Impatient(ReadWriteLock):
    """The test ends elsewhere than that of the readers."""

    closed = False

    def acquire_write(self) -> None:
        with self.condition:
            while self.readers > 0 and not self.closed:
                self.condition.wait()
            self.writing = True


class Resetting(ReadWriteLock):
    """Other parties are meant to let the writer in."""

    def reset(self) -> None:
        self.readers = 0


class Guessing(ReadWriteLock):
    """It raises the count only under some condition."""

    def acquire_read(self) -> None:
        with self.condition:
            if not self.writing:
                self.readers += 1


def by_calls(lock: ReadWriteLock, inside: Callable[[], object]) -> None:
    lock.acquire_read()
    try:
        inside()
    finally:
        lock.release_read()


def by_block(lock: ReadWriteLock, inside: Callable[[], object]) -> None:
    with lock.read():
        inside()


def left_behind(lock: ReadWriteLock, inside: Callable[[], object]) -> None:
    lock.acquire_read()
    inside()
    let_another_end_it(lock)


def let_another_end_it(lock: ReadWriteLock) -> None:
    lock.release_read()


@pytest.mark.parametrize("reads", [by_calls, by_block])
def test_a_writer_waits_for_the_readers(front: Front, reads: Callable[..., None]) -> None:
    lock = ReadWriteLock()
    front.hold(reads, lock, lambda: front.get(b""))
    front.start("waiter", lock.acquire_write)
    wait = front.seen("thread:waiter")
    assert targets(wait) == ["thread:holder"]
    report = front.report_when_still("waiter", "holder")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.doubt) == (True, "")
    assert all(way.party == "front/thread:holder" for way in look.ways_out)
    front.let_go()
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged


def test_a_reader_waits_for_the_writer(front: Front) -> None:
    lock = ReadWriteLock()

    def writes() -> None:
        lock.acquire_write()
        try:
            front.get(b"")
        finally:
            lock.release_write()

    front.hold(writes)
    assert front.waits_for(by_block, lock, lambda: None) == ["thread:holder"]
    front.let_go()


def test_a_writer_waits_for_all_readers(front: Front) -> None:
    lock = ReadWriteLock()
    front.start("first", by_block, lock, lambda: front.get(b""))
    front.wait_for_callers(1)
    front.hold(by_calls, lock, lambda: front.get(b""))
    front.start("waiter", lock.acquire_write)
    wait = front.seen("thread:waiter")
    assert sorted(targets(wait)) == ["thread:first", "thread:holder"]
    assert wait.needs == 2
    front.let_go()


@pytest.mark.parametrize("lock", [WithTimeout(), Impatient(), Resetting(), Guessing()], ids=lambda lock: type(lock).__name__)
def test_a_wait_that_may_end_otherwise_is_not_reported(front: Front, lock: ReadWriteLock) -> None:
    front.hold(by_calls, lock, lambda: front.get(b""))
    assert front.waits_unseen(lock.acquire_write)
    front.let_go()


def test_without_every_reader_the_holders_are_unknown(front: Front) -> None:
    lock = ReadWriteLock()
    front.start("other", left_behind, lock, lambda: front.get(b""))
    front.wait_for_callers(1)
    front.hold(by_block, lock, lambda: front.get(b""))
    assert front.waits_unseen(lock.acquire_write)
    front.let_go()


@pytest.mark.parametrize("how", ["method", "function", "attribute"])
def test_a_party_that_may_lower_the_count_later_is_a_way_out(front: Front, how: str) -> None:
    lock = ReadWriteLock()
    go = threading.Event()

    def lowers() -> None:
        go.wait(FAR_SECONDS)
        if how == "method":
            lock.release_read()
        elif how == "function":
            let_another_end_it(lock)
        else:
            lock.readers = 0

    def upgrades() -> None:
        with suppress(RuntimeError), lock.read():
            lock.acquire_write()

    front.start("other", lowers)
    front.start("upgrader", upgrades)
    assert targets(front.seen("thread:upgrader")) == ["thread:upgrader"]
    report = front.report_when_still("upgrader", "other")
    look = of(look_at(front.agent, report), "front/thread:upgrader")
    assert look.ways_out or look.doubt
    go.set()
    with lock.condition:
        lock.readers = 0
        lock.condition.notify_all()
    front.let_go()


class Table:
    """A service with a lock of its own."""

    def __init__(self) -> None:
        self.lock = ReadWriteLock()

    def by_calls(self, request: bytes, _: Any) -> bytes:
        self.lock.acquire_read()
        try:
            return request
        finally:
            self.lock.release_read()

    def by_block(self, request: bytes, _: Any) -> bytes:
        with self.lock.read():
            return request

    def lets_another_end_it(self, request: bytes, _: Any) -> bytes:
        let_another_end_it(self.lock)
        return request

    def lowers(self, request: bytes, _: Any) -> bytes:
        self.lock.readers -= 1
        return request

    def writes(self, request: bytes, _: Any) -> bytes:
        self.lock.acquire_write()
        self.lock.release_write()
        return request

    def reads_and_lowers(self, request: bytes, _: Any) -> bytes:
        with self.lock.read():
            self.lock.readers -= 1
        return request

    def lets_one_in_by_a_text(self, request: bytes, _: Any) -> bytes:
        with self.lock.read():
            getattr(self.lock, request.decode())()
        return request


@pytest.mark.parametrize(
    ("method", "doubtful"),
    [
        *((one, False) for one in (Table.by_calls, Table.by_block, Table.writes)),
        *((one, True) for one in (Table.lets_another_end_it, Table.lowers)),
        *((one, True) for one in (Table.reads_and_lowers, Table.lets_one_in_by_a_text)),
    ],
)
def test_a_method_of_a_server_that_only_reads_in_between_is_no_doubt(
    front: Front, alone: Callable[..., Agent], method: Any, doubtful: bool
) -> None:
    table = Table()
    with serving(alone("other"), Query=method.__get__(table)):
        front.hold(by_block, table.lock, lambda: front.get(b""))
        assert front.waits_for(table.lock.acquire_write) == ["thread:holder"]
        report = front.report_when_still("waiter")
        look = of(look_at(front.agent, report), "front/thread:waiter")
        front.let_go()
    assert ("/s/Query" in look.doubt) is doubtful, look.doubt


def test_a_reader_that_wants_to_write_waits_for_itself(front: Front) -> None:
    lock = ReadWriteLock()

    def upgrades() -> None:
        with lock.read():
            lock.acquire_write()

    front.start("upgrader", upgrades)
    assert targets(front.seen("thread:upgrader")) == ["thread:upgrader"]
    report = front.report_when_still("upgrader")
    look = of(look_at(front.agent, report), "front/thread:upgrader")
    assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    with lock.condition:
        lock.readers = 0
        lock.condition.notify_all()
    front.let_go()


class OwnedLock:
    """A lock that knows its owner."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.owner: object = None

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner is not None:
                self.condition.wait()
            self.owner = who

    def release(self) -> None:
        with self.condition:
            self.owner = None
            self.condition.notify_all()


class NamedLock(OwnedLock):
    """As above, tested in another way."""

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner:
                self.condition.wait()
            self.owner = who


class ThreadLock(OwnedLock):
    """As above, for threads."""

    def acquire(self, who: object) -> None:
        del who
        with self.condition:
            self.condition.wait_for(lambda: self.owner is None)
            self.owner = threading.current_thread()


class EnteredLock(OwnedLock):
    """As above, for ``with`` blocks."""

    def __enter__(self) -> None:
        with self.condition:
            while self.owner is not None:
                self.condition.wait()
            self.owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        with self.condition:
            self.owner = None
            self.condition.notify_all()


class LeftOpen(EnteredLock):
    """Its block exits without releasing anything."""

    def __exit__(self, *_: object) -> None:
        print(self.owner)


class LeasedLock(OwnedLock):
    """Its owner may change at any moment."""

    def hand_over(self, who: object) -> None:
        self.owner = who


class ReentrantLock(OwnedLock):
    """Its owner is let in."""

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner is not None and self.owner != who:
                self.condition.wait()
            self.owner = who


class CountingLock:
    """Its owner is let in, and leaves as often."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.owner: object = None
        self.entered = 0

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner is not None and self.owner != who:
                self.condition.wait()
            self.owner = who
            self.entered += 1

    def release(self) -> None:
        with self.condition:
            self.entered -= 1
            if self.entered == 0:
                self.owner = None
                self.condition.notify_all()


class ChangingLock(OwnedLock):
    """The variable of the waiter changes meanwhile."""

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner is not None and self.owner != who:
                self.condition.wait()
                who = "a"
            self.owner = who


class OddName(str):
    """An owner that may equal another."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class VacantLock(OwnedLock):
    """The owner is removed only under some condition."""

    def acquire(self, who: object) -> None:
        with self.condition:
            while self.owner is not None:
                self.condition.wait()
            self.owner = who if self.condition else None


class Empty(list[int]):
    """An owner that is false in a test."""


def owns(lock: OwnedLock | CountingLock, who: object, inside: Callable[[], object]) -> None:
    lock.acquire(who)
    try:
        inside()
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("lock", "who"),
    [
        *((OwnedLock(), "a"), (OwnedLock(), Empty()), (NamedLock(), "a"), (ThreadLock(), "a")),
        *((ReentrantLock(), "a"), (CountingLock(), "a")),
    ],
)
def test_a_wait_for_no_owner_is_a_wait_for_the_present_owner(front: Front, lock: OwnedLock | CountingLock, who: object) -> None:
    front.hold(owns, lock, who, lambda: front.get(b""))
    assert front.waits_for(owns, lock, "b", lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize(
    ("lock", "who"), [(LeasedLock(), "a"), (VacantLock(), "a"), (ChangingLock(), "a"), (ReentrantLock(), OddName("a"))]
)
def test_an_owner_that_may_change_otherwise_is_not_a_holder(front: Front, lock: OwnedLock, who: object) -> None:
    front.hold(owns, lock, who, lambda: front.get(b""))
    assert front.waits_unseen(owns, lock, "b", lambda: None)
    front.let_go()


@pytest.mark.parametrize("lock", [EnteredLock(), LeftOpen()], ids=lambda lock: type(lock).__name__)
def test_a_party_in_the_block_of_a_lock_with_an_owner_is_the_owner(front: Front, lock: EnteredLock) -> None:
    def enters(inside: Callable[[], object]) -> None:
        with lock:
            inside()

    front.hold(enters, lambda: front.get(b""))
    if type(lock) is EnteredLock:
        assert front.waits_for(enters, lambda: None) == ["thread:holder"]
    else:
        assert front.waits_unseen(enters, lambda: None)
        lock.release()
    front.let_go()


def test_a_reader_that_entered_twice_is_waited_for_once(front: Front) -> None:
    lock = CountingLock()
    front.hold(owns, lock, "a", lambda: owns(lock, "a", lambda: front.get(b"")))
    wait_for = front.waits_for(owns, lock, "b", lambda: None)
    assert wait_for == ["thread:holder"]
    front.let_go()


def test_a_test_of_an_owner_that_may_be_false_is_not_a_gate(front: Front) -> None:
    class Owner:
        """True for some time."""

        def __bool__(self) -> bool:
            return True

    lock = NamedLock()
    front.hold(owns, lock, Owner(), lambda: front.get(b""))
    assert front.waits_unseen(owns, lock, "b", lambda: None)
    front.let_go()


@pytest.mark.parametrize("lowers", [True, False])
def test_a_party_that_removes_an_expired_owner_is_a_way_out(front: Front, lowers: bool) -> None:
    lock = OwnedLock()
    go = threading.Event()

    def expires() -> None:
        go.wait(FAR_SECONDS)
        with lock.condition:
            lock.owner = None
            lock.condition.notify_all()

    def asks() -> None:
        go.wait(FAR_SECONDS)
        print(lock.condition)

    front.start("other", expires if lowers else asks)
    front.hold(owns, lock, "a", lambda: front.get(b""))
    assert front.waits_for(owns, lock, "b", lambda: None) == ["thread:holder"]
    report = front.report_when_still("waiter", "other")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    ways = [way for way in look.ways_out if way.party != "front/thread:holder"]
    assert bool(ways or look.doubt) is lowers
    go.set()
    front.let_go()


class Turnstile:
    """Every party waits until another one lets it through."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.closed = False
        self.waiting = 0

    def enter(self) -> None:
        with self.condition:
            self.waiting += 1
            while self.waiting > 0:
                self.condition.wait()
            self.waiting -= 1

    def admit(self) -> None:
        with self.condition:
            self.waiting -= 1
            self.condition.notify_all()

    def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        with self.condition:
            self.closed = False
            self.condition.notify_all()

    def stand_until_open(self) -> None:
        with self.condition:
            while self.closed:
                self.condition.wait()

    def close_and_stand(self) -> None:
        self.close()
        try:
            self.stand_until_open()
        finally:
            self.open()


@pytest.mark.parametrize(("waits", "ends"), [("enter", "admit"), ("close_and_stand", "open")])
def test_a_count_that_other_parties_are_meant_to_lower_is_not_a_lock(front: Front, waits: str, ends: str) -> None:
    turnstile = Turnstile()
    assert front.waits_unseen(getattr(turnstile, waits))
    getattr(turnstile, ends)()
    front.let_go()


class Mutex:
    """A lock for tasks."""

    def __init__(self) -> None:
        self.condition = asyncio.Condition()
        self.taken = False

    async def __aenter__(self) -> None:
        await self.lock()

    async def __aexit__(self, *_: object) -> None:
        await self.unlock()

    async def lock(self) -> None:
        async with self.condition:
            while self.taken:
                await self.condition.wait()
            self.taken = True

    async def unlock(self) -> None:
        async with self.condition:
            self.taken = False
            self.condition.notify()


async def test_tasks_wait_for_each_others_locks(front: Front) -> None:
    first, second = Mutex(), Mutex()
    both = asyncio.Barrier(2)

    async def takes(one: Mutex, other: Mutex) -> None:
        async with one:
            await both.wait()
            async with other:
                pass

    tasks = [asyncio.create_task(takes(first, second), name="a"), asyncio.create_task(takes(second, first), name="b")]
    report = await asyncio.to_thread(report_when, front.agent, lambda report: all(waits_of(report, name) for name in "ab"))
    assert (waits_of(report, "a"), waits_of(report, "b")) == ([["task:b"]], [["task:a"]])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Tests:
    """The gate that is tested; ``count`` is at least one, and ``flag`` is True."""

    condition: Any
    count = flag = other = 0

    def more_than_none(self) -> None:
        while self.count > 0:
            self.condition.wait()

    def any_of(self) -> None:
        while self.other or self.count != 0:
            self.condition.wait()

    def at_least_one(self) -> None:
        while not self.count < 1:
            self.condition.wait()

    def is_set(self) -> None:
        while self.flag is True or self.other:
            self.condition.wait()

    def not_equal(self) -> None:
        while self.flag != False:  # noqa: E712 - people write it
            self.condition.wait()

    def both(self) -> None:
        while self.count and self.other:
            self.condition.wait()

    def more_than_one(self) -> None:
        while self.count > 1:
            self.condition.wait()

    def none(self) -> None:
        while self.count == 0:
            self.condition.wait()

    def by_a_call(self) -> None:
        while self.count > 0 and bool(self):
            self.condition.wait()

    def once(self) -> None:
        if self.count > 0:
            self.condition.wait()

    def changing(self) -> None:
        while self.count > 0:
            self.condition.wait()
            self.count = 0


@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        ("more_than_none", ["count"]),
        ("any_of", ["count"]),
        ("at_least_one", ["count"]),
        ("is_set", ["flag"]),
        ("not_equal", ["flag"]),
        ("both", []),
        ("more_than_one", []),
        ("none", []),
        ("by_a_call", []),
        ("once", []),
        ("changing", []),
    ],
)
def test_the_attributes_on_which_a_test_keeps_waiting(name: str, keeps: list[str]) -> None:
    code = getattr(_Tests, name).__code__
    every = instructions_of(code)
    reads = next(index for index, one in enumerate(every) if one.argval == "wait")
    place = wait_before(code, next(one.offset for one in every[reads:] if one.opname == "CALL"))
    assert place is not None
    found = [one for one in ("count", "flag") if keeps_waiting(code, *place, "self", one, Positive(one), frozenset())]
    assert found == keeps
