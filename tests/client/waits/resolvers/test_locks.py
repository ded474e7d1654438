"""Locks and bounded semaphores that the application has made itself: a party waits for the holders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, is_unseen, targets


class Account:
    """An object with a lock, as commonly written."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.locks = {"a": lock}

    def by_attribute(self, inside: Callable[[], object]) -> None:
        with self._lock:
            inside()

    def by_item(self, inside: Callable[[], object]) -> None:
        name = "a"
        with self.locks[name]:
            inside()

    def by_acquire(self, inside: Callable[[], object]) -> None:
        self._lock.acquire()
        try:
            inside()
        finally:
            self._lock.release()


WAITS: dict[str, Callable[[Account, Callable[[], object]], None]] = {
    "attribute": Account.by_attribute,
    "item": Account.by_item,
    "acquire": Account.by_acquire,
}


@pytest.mark.parametrize("how", WAITS)
@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock, threading.Condition])
def test_a_waiter_for_a_lock_waits_for_the_party_in_its_block(front: Front, kind: Callable[[], Any], how: str) -> None:
    account = Account(kind())
    front.hold(account.by_attribute, lambda: front.get(b""))
    front.start("waiter", WAITS[how], account, lambda: None)
    wait = front.seen("thread:waiter")
    assert targets(wait) == ["thread:holder"]
    assert (wait.needs, wait.deadline, wait.uncoloured) == (1, None, True)
    report = front.report_when_still("waiter", "holder")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    front.let_go()
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged


def test_a_lock_after_a_bare_acquire_has_no_known_holder(front: Front) -> None:
    lock = threading.Lock()

    def holds() -> None:
        lock.acquire()  # and hands it to another thread
        front.get(b"")

    front.hold(holds)
    assert front.waits_unseen(Account(lock).by_attribute, lambda: None)
    lock.release()
    front.let_go()


def test_a_lock_released_within_its_block_is_held_by_the_next_holder(front: Front) -> None:
    lock = threading.Lock()
    taken = threading.Lock()

    def holds() -> None:
        with lock:
            lock.release()
            taken.acquire()
            lock.acquire(timeout=PATIENCE_SECONDS)

    def takes() -> None:
        lock.acquire()
        front.get(b"")
        lock.release()

    taken.acquire()
    front.start("holder", holds)
    front.start("other", takes)
    front.wait_for_callers()
    assert front.waits_for(Account(lock).by_attribute, lambda: None) == ["thread:other"]
    taken.release()
    front.let_go()


def test_a_waiter_for_a_condition_has_released_its_lock(front: Front) -> None:
    lock = threading.Lock()
    condition = threading.Condition(lock)
    holding = threading.Event()

    def waits() -> None:
        with condition:
            holding.set()
            condition.wait(PATIENCE_SECONDS)

    front.start("first", waits)
    assert holding.wait(PATIENCE_SECONDS)
    front.hold(Account(lock).by_attribute, lambda: front.get(b""))
    assert front.waits_for(Account(lock).by_attribute, lambda: None) == ["thread:holder"]
    with ThreadPoolExecutor(1) as executor:
        executor.submit(front.let_go)
        with condition:
            condition.notify()


def test_two_locks_in_opposite_orders_deadlock(front: Front) -> None:
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def takes(one: threading.Lock, other: threading.Lock) -> None:
        with suppress(RuntimeError), one:
            both.wait()
            with other:
                pass

    front.start("left", takes, first, second)
    front.start("right", takes, second, first)
    assert targets(front.seen("thread:left")) == ["thread:right"]
    assert targets(front.seen("thread:right")) == ["thread:left"]
    report = front.report_when_still("left", "right")
    assert all(one.unchanged and not one.ways_out and not one.doubt for one in look_at(front.agent, report).parties)
    second.release()  # which no other test releases
    front.let_go()


def test_a_thread_that_acquires_a_lock_twice_waits_for_itself(front: Front) -> None:
    lock = threading.Lock()

    def twice() -> None:
        with suppress(RuntimeError), lock, lock:
            pass

    front.start("twice", twice)
    assert targets(front.seen("thread:twice")) == ["thread:twice"]
    lock.release()  # which no other test releases
    front.let_go()


@pytest.mark.parametrize("timed", [{"timeout": PATIENCE_SECONDS}, {"blocking": False}])
def test_a_bounded_or_non_blocking_acquire_is_not_a_wait(front: Front, timed: dict[str, Any]) -> None:
    lock = threading.Lock()

    def tries() -> None:
        if not lock.acquire(**timed):
            front.get(b"")

    front.hold(Account(lock).by_attribute, lambda: front.get(b""))
    front.start("waiter", tries)
    assert is_unseen(front.report_when_still("holder"), "thread:waiter")
    front.let_go()


def test_a_waiter_for_a_bounded_semaphore_waits_for_one_of_its_holders(front: Front) -> None:
    shares = threading.BoundedSemaphore(2)

    def has(inside: Callable[[], object]) -> None:
        with shares:
            inside()

    front.start("one", has, lambda: front.get(b""))
    front.start("two", has, lambda: front.get(b""))
    front.wait_for_callers(2)
    front.start("waiter", has, lambda: None)
    wait = front.seen("thread:waiter")
    assert (sorted(targets(wait)), wait.needs) == (["thread:one", "thread:two"], 1)
    front.let_go()


@pytest.mark.parametrize("refilled", [False, True])
def test_another_party_that_can_reach_a_bounded_semaphore_may_release_a_permit(front: Front, refilled: bool) -> None:
    shares, over = threading.BoundedSemaphore(2), threading.Event()

    def has(shares: Any, inside: Callable[[], object]) -> None:
        with shares:
            inside()

    def refills(shares: Any) -> None:
        if not over.wait(PATIENCE_SECONDS):
            shares.release()

    refill = [threading.Thread(target=refills, args=(shares,))] if refilled else []
    for thread in refill:
        thread.start()
    front.start("one", has, shares, lambda: front.get(b""))
    front.start("two", has, shares, lambda: front.get(b""))
    front.wait_for_callers(2)
    front.start("waiter", has, shares, lambda: None)
    front.seen("thread:waiter")
    del shares
    seen = of(look_at(front.agent, front.report_when_still("waiter")), "front/thread:waiter")
    assert any("(refills)" in way.text for way in seen.ways_out) is refilled, seen.ways_out
    over.set()
    front.let_go()
    for thread in refill:
        thread.join()


@pytest.mark.parametrize("kind", [threading.BoundedSemaphore, threading.Semaphore])
def test_a_permit_after_a_bare_acquire_may_be_released(front: Front, kind: Callable[[int], Any]) -> None:
    shares = kind(2)

    def has(inside: Callable[[], object]) -> None:
        with shares:
            inside()

    shares.acquire()  # its holder may release it in a callback
    front.start("one", has, lambda: front.get(b""))
    front.wait_for_callers()
    assert front.waits_unseen(has, lambda: None)
    shares.release()
    front.let_go()


def test_a_party_in_nested_blocks_holds_all_of_their_locks(front: Front) -> None:
    outer, middle, inner = threading.Lock(), threading.RLock(), threading.Lock()

    def holds() -> None:
        with outer, middle, suppress(ValueError), inner:
            front.get(b"")

    front.hold(holds)
    for name, lock in (("outer", outer), ("middle", middle), ("inner", inner)):
        front.start(name, Account(lock).by_attribute, lambda: None)
        assert targets(front.seen(f"thread:{name}")) == ["thread:holder"]
    front.let_go()


def test_a_lock_that_a_name_referred_to_before_is_not_the_held_one(front: Front) -> None:
    first, second = threading.Lock(), threading.Lock()

    def holds() -> None:
        for lock in (first,):
            with lock:
                lock = second  # noqa: PLW2901
                front.get(b"")

    second.acquire()
    front.hold(holds)
    assert front.waits_unseen(Account(second).by_attribute, lambda: None)
    second.release()
    front.let_go()


CHOICES: dict[str, Callable[[Any, Any, Callable[[], object]], None]] = {}


def _choice(function: Callable[[Any, Any, Callable[[], object]], None]) -> None:
    CHOICES[function.__name__] = function


@_choice
def by_condition(taken: Any, other: Any, inside: Callable[[], object]) -> None:
    with taken if taken is not other else other:
        inside()


@_choice
def by_or(taken: Any, other: Any, inside: Callable[[], object]) -> None:
    with taken or other:
        inside()


@_choice
def by_call(taken: Any, other: Any, inside: Callable[[], object]) -> None:
    with max((taken, other), key=lambda lock: lock is taken):
        inside()


@_choice
def by_negation(taken: Any, other: Any, inside: Callable[[], object]) -> None:
    with other if taken is other else taken:
        inside()


@pytest.mark.parametrize("how", CHOICES)
def test_a_lock_chosen_at_run_time_never_gets_a_wrong_holder(front: Front, how: str) -> None:
    taken, other = threading.Lock(), threading.Lock()
    front.hold(CHOICES[how], taken, other, lambda: front.get(b""))
    other.acquire()
    assert front.waits_unseen(Account(other).by_attribute, lambda: None)
    other.release()
    front.let_go()
