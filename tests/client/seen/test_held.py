"""Who has a lock by where he stands: blocks whatever makes their object, functions under contextmanager, and bare acquire()."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from stilltrue.runtime.compat import kept_values
from stilltrue.runtime.seen.blocks import exits_of
from tests.client.look.worlds import look_at, of
from tests.client.seen.conftest import PATIENCE_SECONDS, Front, is_unseen, targets
from tests.client.seen.test_locks_of_tasks import Loop, waits_of

Inside = Callable[[], object]
HELD: dict[str, Callable[[Any, Inside], None]] = {}
NOT_HELD: dict[str, Callable[[Any, Inside], None]] = {}
reads_stacks = pytest.mark.skipif(
    not kept_values._can_read(),
    reason="what a running frame keeps cannot be read here",
)


def held(function: Callable[[Any, Inside], None]) -> Callable[[Any, Inside], None]:
    HELD[function.__name__] = function
    return function


def not_held(function: Callable[[Any, Inside], None]) -> Callable[[Any, Inside], None]:
    NOT_HELD[function.__name__] = function
    return function


@contextmanager
def locked(locks: dict[str, Any], key: str) -> Iterator[None]:
    with locks[key]:
        yield


@contextmanager
def taken(lock: Any) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def within(lock: Any) -> Iterator[None]:
    with taken(lock):
        yield


@contextmanager
def given_back_early(lock: Any) -> Iterator[None]:
    lock.acquire()
    lock.release()
    yield


@contextmanager
def on_a_condition(lock: Any, takes: bool = True) -> Iterator[None]:
    if takes:
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


class Shards:
    def __init__(self, lock: Any) -> None:
        self._locks = [threading.Lock(), lock]

    @property
    def mine(self) -> Any:
        return self._locks[1]

    def of(self, key: int) -> Any:
        return self._locks[key % 2]


@held
def by_a_generator(lock: Any, inside: Inside) -> None:
    with locked({"a": lock}, "a"):
        inside()


@held
def by_a_generator_with_finally(lock: Any, inside: Inside) -> None:
    with taken(lock):
        inside()


@held
def by_generators_in_generators(lock: Any, inside: Inside) -> None:
    with within(lock):
        inside()


@held
def by_a_call(lock: Any, inside: Inside) -> None:
    with Shards(lock).of(7):
        inside()


@held
def by_a_property(lock: Any, inside: Inside) -> None:
    with Shards(lock).mine:
        inside()


@held
def by_a_computed_item(lock: Any, inside: Inside) -> None:
    locks, key = [threading.Lock(), lock], 4
    with locks[key % 3]:
        inside()


@held
def by_a_choice(lock: Any, inside: Inside) -> None:
    with lock if id(inside) > 0 else threading.Lock():
        inside()


@held
def bare(lock: Any, inside: Inside) -> None:
    lock.acquire()
    inside()
    lock.release()


@held
def bare_with_two_ways_out(lock: Any, inside: Inside) -> None:
    lock.acquire()
    if inside() is None:
        lock.release()
        return
    lock.release()


@not_held
def by_a_generator_that_has_given_it_back(lock: Any, inside: Inside) -> None:
    with given_back_early(lock):
        lock.acquire(timeout=1)
        inside()
    lock.release()


@not_held
def by_a_generator_that_may_have_it(lock: Any, inside: Inside) -> None:
    with on_a_condition(lock):
        inside()


@not_held
def by_a_generator_that_others_have(lock: Any, inside: Inside) -> None:
    manager = taken(lock)
    others = [manager]
    with manager:
        inside()
    others.clear()


@not_held
def bare_and_left(lock: Any, inside: Inside) -> None:
    lock.acquire()
    if inside() is not None:
        return  # and so does get(b"")
    lock.release()


@not_held
def bare_and_handed_over(lock: Any, inside: Inside) -> None:
    lock.acquire()
    threading.Timer(PATIENCE_SECONDS, lock.release)
    inside()
    lock.release()


@pytest.mark.parametrize("how", HELD)
@reads_stacks
def test_who_stands_there_has_it(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.start("holder", HELD[how], lock, lambda: front.get(b""))
    front.wait_for_callers()
    front.start("waiter", HELD[how], lock, lambda: None)
    assert targets(front.seen("thread:waiter")) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_HELD)
def test_of_who_stands_elsewhere_nobody_says_it(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.start("holder", NOT_HELD[how], lock, lambda: front.get(b""))
    front.wait_for_callers()
    front.start("waiter", by_a_call, lock, lambda: None)
    assert is_unseen(front.report_when_still("waiter"), "thread:waiter")
    if how == "bare_and_left":
        lock.release()
    front.let_go()


@reads_stacks
def test_who_else_releases_what_a_thread_has_taken_bare_is_a_way_out(front: Front) -> None:
    """A lock as a signal: its function takes it twice, and another thread gives it back in between."""
    lock, over = threading.Lock(), threading.Event()

    def awaits() -> None:
        lock.acquire()
        lock.acquire()
        lock.release()

    def signals() -> None:
        over.wait(PATIENCE_SECONDS)
        lock.release()

    signaller = threading.Thread(target=signals, name="signaller")
    signaller.start()
    front.start("waiter", awaits)
    assert targets(front.seen("thread:waiter")) == ["thread:waiter"]
    seen = of(look_at(front.agent, front.report_when_still("waiter")), "front/thread:waiter")
    assert any("signaller" in one.text for one in seen.ways_out), seen
    over.set()
    front.let_go()
    signaller.join()


def test_asynchronous_generators_and_locks_that_a_call_returns(front: Front) -> None:
    locks = {"a": asyncio.Lock(), "b": asyncio.Lock()}

    @asynccontextmanager
    async def entered(key: str) -> AsyncIterator[None]:
        async with locks[key]:
            yield

    async def has(loop: Loop) -> None:
        async with entered("a"), locks.get("b"):  # type: ignore[union-attr]
            await asyncio.sleep(1_000)

    async def wants_a(loop: Loop) -> None:
        async with entered("a"):
            pass

    async def wants_b(loop: Loop) -> None:
        async with locks["b"]:
            pass

    loop = Loop(front)
    loop.run(has, wants_a, wants_b)
    report = loop.report("t1", "t2")
    assert waits_of(report, "t1") == [["task:t0"]]
    assert waits_of(report, "t2") == [["task:t0"]]
    loop.stop()


@reads_stacks
def test_what_a_frame_keeps_is_read_in_frames_with_variables_of_all_kinds() -> None:
    first, second = threading.Lock(), threading.Lock()
    found: list[Any] = []
    reading, over = threading.Event(), threading.Event()

    def stands(argument: int, *more: int, keyword: Any, **others: Any) -> Any:
        held = [argument for _ in more]
        with first, second:
            found.append(lambda: (held, keyword, argument, others))
            reading.set()
            over.wait(PATIENCE_SECONDS)
        return held

    thread = threading.Thread(target=stands, args=(1, 2, 3), kwargs={"keyword": first, "other": 1})
    thread.start()
    assert reading.wait(PATIENCE_SECONDS)
    frame: Any = sys._current_frames()[thread.ident or 0]
    while frame.f_code is not stands.__code__:
        frame = frame.f_back
    assert [one.__self__ for one in exits_of(frame)] == [first, second]
    over.set()
    thread.join()
    assert exits_of(frame) == []
