"""Locks acquired by ``acquire()`` and released in ``finally``: which frames surely hold one, and which may not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue.protocol.report import PartyTarget
from stilltrue.runtime.waits.holders.try_finally import releases_only_in_finally
from tests.client.look.worlds import look_at, of, report_of, report_when
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, is_unseen, targets
from tests.client.waits.resolvers.test_locks import Account
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of
from tests.client.waits.taking import HELD, NOT_SURELY_HELD, TRYING, Taking, by_finally


@pytest.mark.parametrize("how", HELD)
def test_a_party_that_releases_in_finally_holds_the_lock(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.hold(HELD[how], lock, lambda: front.get(b""))
    assert front.waits_for(by_finally, lock, lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", TRYING)
def test_a_party_that_has_tried_with_success_holds_the_lock(front: Front, how: Taking) -> None:
    lock = threading.Lock()
    front.hold(how, lock, lambda: front.get(b""))
    assert front.waits_for(by_finally, lock, lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_SURELY_HELD)
def test_for_other_code_the_holder_is_unknown(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.hold(NOT_SURELY_HELD[how], lock, lambda: front.get(b""))
    assert front.waits_unseen(Account(lock).by_attribute, lambda: None)
    if how == "given_back_when_it_fails":
        lock.release()
    front.let_go()


def test_code_that_releases_only_its_own_locks_is_recognised() -> None:
    assert all(releases_only_in_finally(function.__code__) for function in HELD.values())
    assert not any(releases_only_in_finally(function.__code__) for function in NOT_SURELY_HELD.values())


def test_one_name_for_two_locks(front: Front) -> None:
    """The attribute refers to another lock by now, which an unknown party holds."""
    second, owner = threading.Lock(), SimpleNamespace(lock=threading.Lock())

    def holds() -> None:
        owner.lock.acquire()
        try:
            owner.lock = second
            front.get(b"")
        finally:
            owner.lock.release()

    second.acquire()
    front.hold(holds)
    assert front.waits_unseen(Account(second).by_attribute, lambda: None)
    owner.lock = SimpleNamespace(release=lambda: None)
    second.release()
    front.let_go()


def test_a_caller_of_code_that_releases_others_locks_may_not_hold_it(front: Front) -> None:
    lock = threading.Lock()

    def waits_without() -> None:
        lock.release()
        try:
            front.get(b"")
        finally:
            lock.acquire()

    front.hold(by_finally, lock, waits_without)
    lock.acquire()
    assert front.waits_unseen(Account(lock).by_attribute, lambda: None)
    lock.release()
    front.let_go()


def test_two_locks_in_opposite_orders_deadlock(front: Front) -> None:
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def takes(one: threading.Lock, other: threading.Lock) -> None:
        with suppress(RuntimeError):
            one.acquire()
            try:
                both.wait()
                by_finally(other, lambda: None)
            finally:
                one.release()

    front.start("left", takes, first, second)
    front.start("right", takes, second, first)
    assert targets(front.seen("thread:left")) == ["thread:right"]
    assert targets(front.seen("thread:right")) == ["thread:left"]
    report = front.report_when_still("left", "right")
    for one in look_at(front.agent, report).parties:
        assert (one.unchanged, one.doubt) == (True, "")
        assert {way.party for way in one.ways_out} <= {"front/thread:left", "front/thread:right"}
    second.release()  # which no other test releases
    front.let_go()


def test_another_party_that_acquires_and_releases_the_lock_is_not_a_way_out(front: Front) -> None:
    lock, idle = threading.Lock(), threading.Event()

    def uses_it_now_and_then() -> None:
        while not idle.wait(PATIENCE_SECONDS):
            by_finally(lock, lambda: None)

    def gives_it_back() -> None:
        while not idle.wait(PATIENCE_SECONDS):
            lock.release()

    front.hold(by_finally, lock, lambda: front.get(b""))
    front.start("user", uses_it_now_and_then)
    front.start("waiter", Account(lock).by_attribute, lambda: None)
    front.seen("thread:waiter")
    report = front.report_when_still("waiter", "holder")
    assert {one.party for one in of(look_at(front.agent, report), "front/thread:waiter").ways_out} <= {"front/thread:holder"}
    front.start("undoer", gives_it_back)
    front.report_when_still("undoer")
    ways_out = of(look_at(front.agent, report), "front/thread:waiter").ways_out
    assert any("thread undoer" in one.text for one in ways_out)
    idle.set()
    front.let_go()


@pytest.mark.parametrize("how", TRYING)
def test_another_party_that_tries_the_lock_now_and_then_is_not_a_way_out(front: Front, how: Taking) -> None:
    lock, idle = threading.Lock(), threading.Event()

    def in_the_background() -> None:
        while not idle.wait(PATIENCE_SECONDS):
            how(lock, lambda: None)

    front.hold(by_finally, lock, lambda: front.get(b""))
    front.start("user", in_the_background)
    front.start("trying", how, lock, lambda: None)
    front.start("waiter", Account(lock).by_attribute, lambda: None)
    front.seen("thread:waiter")
    report = front.report_when_still("waiter", "holder", "trying")
    found = of(look_at(front.agent, report), "front/thread:waiter")
    assert {one.party for one in found.ways_out} <= {"front/thread:holder"}
    assert not found.doubt
    idle.set()
    front.let_go()


@contextmanager
def of_a_generator(lock: Any) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def test_a_party_in_the_block_of_a_releasing_generator_may_release_anothers_lock(front: Front) -> None:
    """Another party had the lock meanwhile: ``finally`` may release what the holder has by now."""
    lock, reached, idle = threading.Lock(), threading.Event(), threading.Event()

    def stays() -> None:
        with suppress(RuntimeError), of_a_generator(lock):
            reached.set()
            idle.wait(PATIENCE_SECONDS)

    front.start("user", stays)
    assert reached.wait(PATIENCE_SECONDS)
    lock.release()
    front.hold(by_finally, lock, lambda: front.get(b""))
    front.start("waiter", Account(lock).by_attribute, lambda: None)
    report = front.report_when_still("waiter", "holder")
    if not is_unseen(report, "thread:waiter"):  # if value stacks can be read, two threads seem to hold it
        ways_out = of(look_at(front.agent, report), "front/thread:waiter").ways_out
        assert any("thread user" in one.text for one in ways_out), ways_out
    idle.set()
    front.let_go()


async def taken_by_task(lock: Any, inside: Callable[[], Awaitable[object]]) -> None:
    await lock.acquire()
    try:
        await inside()
    finally:
        lock.release()


async def taken_and_given_back_elsewhere(lock: Any, inside: Callable[[], Awaitable[object]]) -> None:
    await lock.acquire()
    asyncio.get_running_loop().call_later(PATIENCE_SECONDS, lock.release)
    await inside()


@pytest.mark.parametrize("kind", [asyncio.Lock, asyncio.Condition])
def test_two_locks_of_tasks_in_two_orders(front: Front, kind: Callable[[], Any]) -> None:
    loop, one, other = Loop(front), kind(), kind()

    async def takes(first: Any, second: Any) -> None:
        async def then() -> None:
            await asyncio.sleep(0)
            await taken_by_task(second, lambda: asyncio.sleep(1_000))

        await taken_by_task(first, then)

    loop.run(lambda _: takes(one, other), lambda _: takes(other, one))
    report = loop.report("t0", "t1")
    assert (waits_of(report, "t0"), waits_of(report, "t1")) == ([["task:t1"]], [["task:t0"]])
    assert all(found.unchanged and not found.doubt for found in look_at(front.agent, report).parties)
    loop.stop()


def test_a_lock_that_a_timer_releases_has_no_known_holder(front: Front) -> None:
    loop: Any = Loop(front)
    lock = asyncio.Lock()
    loop.run(
        lambda _: taken_and_given_back_elsewhere(lock, lambda: asyncio.sleep(1_000)),
        lambda _: taken_by_task(lock, lambda: asyncio.sleep(0)),
    )
    assert waits_of(report_of(front.agent), "t1") == []
    loop.stop()


def test_a_never_awaited_acquire_makes_no_holder(front: Front) -> None:
    loop: Any = Loop(front)
    lock, other = asyncio.Lock(), asyncio.Lock()

    async def forgets_await() -> None:
        lock.acquire()  # type: ignore[unused-coroutine]
        try:
            await asyncio.sleep(1_000)
        finally:
            lock.release()

    async def takes(loop: Loop) -> None:
        await lock.acquire()
        await asyncio.sleep(1_000)

    loop.run(takes, lambda _: forgets_await(), lambda _: taken_by_task(lock, other.acquire))
    assert waits_of(report_of(front.agent), "t2") == []
    loop.stop()


def test_every_share_of_a_bounded_semaphore(front: Front) -> None:
    shares = threading.BoundedSemaphore(2)
    for name in ("first", "second"):
        front.start(name, by_finally, shares, lambda: front.get(b""))
    front.wait_for_callers(2)
    front.start("waiter", by_finally, shares, lambda: None)
    report = report_when(front.agent, lambda report: not is_unseen(report, "thread:waiter"))
    (wait,) = [one for one in report.waits if one.waiter.endswith("thread:waiter") and isinstance(one.among[0], PartyTarget)]
    assert sorted(targets(wait)) == ["thread:first", "thread:second"]
    front.let_go()
