"""Holders of locks that functions of the application acquire and release: ``account.lock()``, ``acquire_lock(name)``."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, is_unseen, targets
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of

Inside = Callable[[], object]
Holding = Callable[["Account", Inside], None]
HELD: dict[str, Holding] = {}
NOT_HELD: dict[str, Holding] = {}
LOCKS: defaultdict[str, Any] = defaultdict(threading.Lock)


def held(function: Holding) -> Holding:
    HELD[function.__name__] = function
    return function


def not_held(function: Holding) -> Holding:
    NOT_HELD[function.__name__] = function
    return function


class Account:
    def __init__(self) -> None:
        self._lock = LOCKS["account"]

    def lock(self) -> None:
        self._lock.acquire()

    def unlock(self) -> None:
        self._lock.release()

    def acquire(self) -> Any:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def begin(self) -> None:
        self.lock()

    def end(self) -> None:
        mine = self._lock
        mine.release()

    def try_lock(self) -> bool:
        return bool(self._lock.acquire(timeout=PATIENCE_SECONDS))

    def acquire_or_not(self, wait: bool = True) -> bool:
        return self._lock.acquire(wait)  # type: ignore[no-any-return]

    def lock_in_time(self) -> None:
        self._lock.acquire(timeout=PATIENCE_SECONDS)

    def lock_if(self, wanted: bool = True) -> None:
        if wanted:
            self._lock.acquire()


class Block:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def lock(self) -> None:
        self._lock.acquire()

    def unlock(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.lock()

    def __exit__(self, *_: object) -> None:
        self.unlock()


def acquire_lock(name: str) -> None:
    LOCKS[name].acquire()


def release_lock(name: str) -> None:
    LOCKS[name].release()


def take(thing: Any) -> None:
    thing.lock()


def give_back(thing: Any) -> None:
    thing.unlock()


@held
def by_methods(account: Account, inside: Inside) -> None:
    account.lock()
    try:
        inside()
    finally:
        account.unlock()


@held
def by_methods_that_are_called_as_a_locks(account: Account, inside: Inside) -> None:
    account.acquire()
    try:
        inside()
    finally:
        account.release()


@held
def by_methods_that_call_others(account: Account, inside: Inside) -> None:
    account.begin()
    inside()
    account.end()


@held
def by_functions_of_a_name(_: Account, inside: Inside) -> None:
    acquire_lock("account")
    try:
        inside()
    finally:
        release_lock("account")


@held
def by_functions_of_a_thing(account: Account, inside: Inside) -> None:
    take(account)
    if inside() is None:
        give_back(account)
        return
    give_back(account)


@held
def by_a_block_of_its_methods(account: Account, inside: Inside) -> None:
    with Block(account._lock):
        inside()


@held
def around_another(account: Account, inside: Inside) -> None:
    other = Account()
    other._lock = threading.Lock()
    account.lock()
    try:
        other.lock()
        try:
            inside()
        finally:
            other.unlock()
    finally:
        account.unlock()


@held
def around_a_function_that_takes_another(account: Account, inside: Inside) -> None:
    other = Account()
    other._lock = threading.Lock()
    account.lock()
    try:
        by_methods(other, inside)
    finally:
        account.unlock()


@held
def by_a_tested_call(account: Account, inside: Inside, old: str = "") -> None:
    handed_on = False
    if not old:
        account.acquire_or_not()
    elif not account.acquire_or_not(False):
        return
    try:
        if old == "hand it on":
            handed_on = True
            return
        inside()
    finally:
        if not handed_on:
            account.unlock()


@not_held
def by_a_call_that_is_not_tested(account: Account, inside: Inside) -> None:
    account.acquire_or_not(False)
    inside()
    account.unlock()


@not_held
def with_a_time_limit(account: Account, inside: Inside) -> None:
    account.lock_in_time()
    try:
        inside()
    finally:
        account.unlock()


@not_held
def if_it_is_free(account: Account, inside: Inside) -> None:
    if account.try_lock():
        try:
            inside()
        finally:
            account.unlock()


@not_held
def on_a_condition_within(account: Account, inside: Inside) -> None:
    account.lock_if()
    try:
        inside()
    finally:
        account.unlock()


@not_held
def on_a_condition(account: Account, inside: Inside, wanted: bool = True) -> None:
    if wanted:
        account.lock()
    inside()
    if wanted:
        account.unlock()


@not_held
def given_back_meanwhile(account: Account, inside: Inside) -> None:
    account.lock()
    try:
        account.unlock()
        account.try_lock()
        inside()
    finally:
        account.unlock()


@not_held
def given_back_by_another_method(account: Account, inside: Inside) -> None:
    account.lock()
    try:
        account.end()
        account.try_lock()
        inside()
    finally:
        account.unlock()


@not_held
def given_back_by_who_is_called(account: Account, inside: Inside) -> None:
    def works(inside: Inside) -> None:
        account.unlock()
        account.try_lock()
        inside()

    account.lock()
    try:
        works(inside)
    finally:
        account.unlock()


@not_held
def in_a_block_given_back_by_who_is_called(account: Account, inside: Inside) -> None:
    def works(block: Block) -> None:
        block.unlock()
        account.try_lock()
        inside()

    block = Block(account._lock)
    with block:
        works(block)


@not_held
def handed_over(account: Account, inside: Inside) -> None:
    account.lock()
    threading.Timer(PATIENCE_SECONDS, account.unlock)
    inside()
    account.unlock()


@not_held
def given_back_under_another_name(account: Account, inside: Inside) -> None:
    account.lock()
    inside()
    LOCKS["account"].release()


@not_held
def left_behind(account: Account, inside: Inside) -> None:
    account.lock()
    if inside() is not None:
        return  # as does get(b"")
    account.unlock()


@not_held
def of_another_account(account: Account, inside: Inside) -> None:
    of, account = account, Account()
    account._lock = threading.Lock()
    of._lock.acquire()
    account.lock()
    try:
        inside()
    finally:
        account.unlock()
    LOCKS["account"].release()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOCKS.clear()


@pytest.mark.parametrize("how", HELD)
def test_a_party_at_this_position_holds_the_lock(front: Front, how: str) -> None:
    front.start("holder", HELD[how], Account(), lambda: front.get(b""))
    front.wait_for_callers()
    front.start("waiter", HELD[how], Account(), lambda: None)
    assert targets(front.seen("thread:waiter")) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_HELD)
def test_at_other_positions_the_holder_is_unknown(front: Front, how: str) -> None:
    account = Account()
    front.start("holder", NOT_HELD[how], account, lambda: front.get(b""))
    front.wait_for_callers()
    front.start("waiter", by_methods, Account(), lambda: None)
    assert is_unseen(front.report_when_still("waiter"), "thread:waiter")
    if how == "left_behind":
        account.unlock()
    front.let_go()


def _both(met: threading.Barrier, one: Account, other: Account) -> None:
    with suppress(RuntimeError):  # its lock is released from outside
        one.lock()
        try:
            met.wait()
            other.lock()
            other.unlock()
        finally:
            one.unlock()


def _by_name(met: threading.Barrier, one: str, other: str) -> None:
    with suppress(RuntimeError):
        acquire_lock(one)
        try:
            met.wait()
            acquire_lock(other)
            release_lock(other)
        finally:
            release_lock(one)


@pytest.mark.parametrize("how", [_both, _by_name])
def test_two_threads_that_take_two_locks_in_two_orders_wait_for_each_other(front: Front, how: Any) -> None:
    first, second, met = Account(), Account(), threading.Barrier(2)
    second._lock = LOCKS["second"]
    pair = (first, second) if how is _both else ("account", "second")
    front.start("ada", how, met, *pair)
    front.start("bob", how, met, *reversed(pair))
    assert targets(front.seen("thread:ada")) == ["thread:bob"]
    assert targets(front.seen("thread:bob")) == ["thread:ada"]
    look = look_at(front.agent, front.report_when_still("ada", "bob"))
    found = {name: of(look, f"front/thread:{name}").ways_out for name in ("ada", "bob")}
    others = [one for ways in found.values() for one in ways if one.party not in ("front/thread:ada", "front/thread:bob")]
    assert not others
    LOCKS["account"].release()
    front.let_go()


def test_another_thread_that_releases_the_lock_is_a_way_out(front: Front) -> None:
    account, over = Account(), threading.Event()

    def gives_back() -> None:
        over.wait(PATIENCE_SECONDS)
        with suppress(RuntimeError):
            give_back(account)

    def holds() -> None:
        with suppress(RuntimeError):
            by_methods(account, lambda: front.get(b""))

    front.start("holder", holds)
    front.wait_for_callers()
    front.start("waiter", by_methods, account, lambda: None)
    front.start("beside", gives_back)
    assert targets(front.seen("thread:waiter")) == ["thread:holder"]
    seen = of(look_at(front.agent, front.report_when_still("waiter", "beside")), "front/thread:waiter")
    assert any("beside" in one.text for one in seen.ways_out), seen
    over.set()
    front.let_go()


class AsyncAccount:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def lock(self) -> None:
        await self._lock.acquire()

    def unlock(self) -> None:
        self._lock.release()


def test_a_task_that_awaits_an_acquiring_function_holds_the_lock(front: Front) -> None:
    account: Any = []

    async def has(loop: Loop) -> None:
        account.append(AsyncAccount())
        mine = account[0]
        await mine.lock()
        try:
            await asyncio.sleep(1_000)
        finally:
            mine.unlock()

    async def wants(loop: Loop) -> None:
        mine = account[0]
        await mine.lock()
        mine.unlock()

    loop = Loop(front)
    loop.run(has, wants)
    assert waits_of(loop.report("t1"), "t1") == [["task:t0"]]
    loop.stop()
