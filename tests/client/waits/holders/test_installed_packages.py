"""A party in a lock's block still holds it while an installed package releases its own locks; near misses are unseen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.waits.conftest import Front
from tests.client.waits.holders.test_held_locks import reads_stacks
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of

PACKAGE = """
import threading

class Reply:
    def release(self):
        pass

class Pool:
    def release(self, connection):
        pass

class Guard:
    def __init__(self, lock):
        self.lock = lock
    def release(self):
        self.lock.release()

class Client:
    def __init__(self, lock=None):
        self.pool, self.own, self.lock, self.none = Pool(), threading.Lock(), lock, None

    def follows(self, go_on):
        while True:
            reply = [go_on(), Reply()][1]
            if reply is None:
                reply.release()
                continue
            return reply

    def follows_twice(self, go_on):
        reply = Reply()
        reply.release()
        go_on()
        reply = Reply()
        reply.release()

    def gives_back_a_connection(self, go_on):
        pool = self.pool
        try:
            return go_on()
        finally:
            if self.none:
                self.none.release()
            pool.release(self)

    def gives_back_its_own(self, go_on):
        taken = self.own.acquire(timeout=1)
        go_on()
        if taken:
            self.own.release()

    def has_a_function(self, go_on):
        def done():
            self.own.release()
        go_on()

    def is_told_of_it(self, go_on, lock=None):
        lock.release()
        go_on()
        lock.acquire()

    def has_it(self, go_on):
        self.lock.release()
        go_on()
        self.lock.acquire()

    def drops_it(self, go_on, lock=None):
        lock.release()
        del lock
        go_on()

    def has_a_guard(self, go_on):
        guard = Guard(self.lock)
        guard.release()
        go_on()
        self.lock.acquire()

    def has_many(self, go_on, lock=None):
        locks = [lock, Reply()]
        lock = None
        for one in locks:
            one.release()
        go_on()
        locks[0].acquire()

    def asks(self, go_on, other=None):
        other.release()
        go_on()
        other.acquire()

    def calls_what_a_function_gives(self, go_on, other=None):
        other.lent().release()
        go_on()
        other.lent().acquire()

    async def follows_on_a_loop(self, go_on):
        while True:
            reply = await go_on()
            if reply is None:
                return
            reply.release()
"""


class Owner:
    """An object of the application, which may release anything."""

    def __init__(self, lock: Any) -> None:
        self.others = {"a": lock}

    def release(self) -> None:
        self.others["a"].release()

    def acquire(self) -> None:
        self.others["a"].acquire()

    def lent(self) -> Any:
        return self.others["a"]


def _waits(lock: Any) -> None:
    with lock:
        pass


def package(lock: Any = None) -> Any:
    """A client of a package that is made to look installed."""
    names: dict[str, Any] = {"__name__": "package"}
    exec(compile(PACKAGE, "/lib/site-packages/package/client.py", "exec"), names)
    return names["Client"](lock)


Inside = Callable[[Any, Any, Callable[[], object]], object]
HELD: dict[str, Inside] = {
    name: lambda client, lock, go_on, name=name: getattr(client, name)(go_on)  # type: ignore[misc]
    for name in ("follows", "follows_twice", "gives_back_a_connection", "gives_back_its_own", "has_a_function")
}
NOT_HELD: dict[str, Inside] = {
    "is_told_of_it": lambda client, lock, go_on: client.is_told_of_it(go_on, lock=lock),
    "drops_it": lambda client, lock, go_on: client.drops_it(go_on, lock=lock),
    "has_it": lambda client, lock, go_on: client.has_it(go_on),
    "has_a_guard": lambda client, lock, go_on: client.has_a_guard(go_on),
    "has_many": lambda client, lock, go_on: client.has_many(go_on, lock=lock),
    "is_told_of_a_condition": lambda client, lock, go_on: client.is_told_of_it(go_on, lock=threading.Condition(lock)),
    "asks": lambda client, lock, go_on: client.asks(go_on, other=Owner(lock)),
    "asks_by_an_attribute": lambda client, lock, go_on: client.asks(
        go_on, other=SimpleNamespace(release=lock.release, acquire=lock.acquire)
    ),
    "calls_what_a_function_gives": lambda client, lock, go_on: client.calls_what_a_function_gives(go_on, other=Owner(lock)),
}


def assert_nobodys(front: Front, lock: Any, holds: Callable[[], None]) -> None:
    """``holds`` has really released the lock, so it has no known holder: the test has it, outside of any block."""
    front.hold(holds)
    lock.acquire()
    assert front.waits_unseen(_waits, lock)
    lock.release()
    front.let_go()


@pytest.mark.parametrize("how", HELD)
@reads_stacks
def test_a_package_that_releases_its_own_lock_does_not_release_the_callers(front: Front, how: str) -> None:
    lock = threading.Lock()
    client = package()

    def holds() -> None:
        with lock:
            HELD[how](client, lock, lambda: front.get(b""))

    front.hold(holds)
    assert front.waits_for(_waits, lock) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_HELD)
def test_a_lock_that_a_package_may_have_released_has_no_known_holder(front: Front, how: str) -> None:
    lock = threading.Lock()
    client = package(lock)

    def holds() -> None:
        with lock:
            NOT_HELD[how](client, lock, lambda: front.get(b""))
            lock.acquire(blocking=False)

    assert_nobodys(front, lock, holds)


def test_packages_are_judged_alike_on_a_loop(front: Front) -> None:
    client, lock = package(), asyncio.Lock()

    async def has(_: Loop) -> None:
        async with lock:
            await client.follows_on_a_loop(lambda: asyncio.sleep(1_000))

    async def wants(_: Loop) -> None:
        async with lock:
            pass

    loop = Loop(front)
    loop.run(has, wants)
    assert waits_of(loop.report("t1"), "t1") == [["task:t0"]]
    loop.stop()


def test_a_release_under_another_name_is_found(front: Front) -> None:
    """``release_lock`` is ``release``."""
    lock = threading.Lock()

    def holds() -> None:
        with lock:
            lock.release_lock()
            front.get(b"")
            lock.acquire(blocking=False)

    assert_nobodys(front, lock, holds)
