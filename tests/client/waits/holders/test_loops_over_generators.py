"""A party in a loop over a generator that only it has holds what the suspended generator holds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from stilltrue.runtime.compat import value_stack
from tests.client.waits.conftest import Front, is_unseen
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of

Inside = Callable[[], object]
KEPT: list[Any] = []
reads_stacks = pytest.mark.skipif(not value_stack._can_read(), reason="what a running frame keeps cannot be read here")


class Table:
    """Its rows are read under its lock."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def rows(self) -> Iterator[int]:
        with self.lock:
            yield from range(3)

    def copied(self) -> Iterator[int]:
        with self.lock:
            rows = list(range(3))
        yield from rows

    def halves(self) -> Iterator[int]:
        self.lock.acquire()
        try:
            yield from range(2)
        finally:
            self.lock.release()

    def given_back(self) -> Iterator[int]:
        with self.lock:
            self.lock.release()
            yield 1
            self.lock.acquire()


def over_rows(lock: Any, inside: Inside) -> None:
    for _ in Table(lock).rows():
        inside()
        break


def over_halves_in_a_block(lock: Any, inside: Inside) -> None:
    with contextlib.suppress(KeyError):
        for _ in range(1):
            for _ in Table(lock).halves():
                inside()
                break


def over_rows_in_a_function(lock: Any, inside: Inside) -> None:
    def within(one: Inside) -> None:
        for _ in [1, 2]:
            one()
            break

    for _ in Table(lock).rows():
        within(inside)
        break


def over_rows_that_others_have(lock: Any, inside: Inside) -> None:
    KEPT.append(Table(lock).rows())
    for _ in KEPT[0]:
        inside()
        break
    KEPT.clear()


def after_the_rows(lock: Any, inside: Inside) -> None:
    for _ in Table(lock).rows():
        pass
    lock.acquire(timeout=1)
    inside()
    lock.release()


def over_copied_rows(lock: Any, inside: Inside) -> None:
    for _ in Table(lock).copied():
        lock.acquire(timeout=1)
        inside()
        lock.release()
        break


def over_rows_that_are_given_back(lock: Any, inside: Inside) -> None:
    for _ in Table(lock).given_back():
        lock.acquire(timeout=1)
        inside()
        lock.release()


def wants(lock: Any, inside: Inside) -> None:
    with lock:
        inside()


@reads_stacks
@pytest.mark.parametrize("how", [over_rows, over_halves_in_a_block, over_rows_in_a_function], ids=lambda one: one.__name__)
def test_what_a_generator_holds_is_held_by_the_party_that_iterates(front: Front, how: Callable[[Any, Inside], None]) -> None:
    lock = threading.Lock()
    front.hold(how, lock, lambda: front.get(b""))
    assert front.waits_for(wants, lock, lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize(
    "how",
    [over_rows_that_others_have, after_the_rows, over_copied_rows, over_rows_that_are_given_back],
    ids=lambda one: one.__name__,
)
def test_a_generator_that_others_have_or_that_holds_nothing_has_no_known_holder(
    front: Front, how: Callable[[Any, Inside], None]
) -> None:
    lock = threading.Lock()
    front.hold(how, lock, lambda: front.get(b""))
    assert front.waits_unseen(wants, lock, lambda: None)
    front.let_go()


class _AsyncTable:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def rows(self) -> AsyncIterator[int]:
        async with self.lock:
            for row in range(3):
                yield row


@pytest.mark.parametrize("kept", [False, True])
def test_a_task_in_a_loop_over_an_asynchronous_generator_holds_its_lock(front: Front, kept: bool) -> None:
    table = _AsyncTable()

    async def has(loop: Loop) -> None:
        if kept:
            KEPT.append(table.rows())
        async for _ in KEPT[0] if kept else table.rows():
            await asyncio.sleep(1_000)

    async def wants_it(loop: Loop) -> None:
        async with table.lock:
            pass

    loop = Loop(front)
    loop.run(has, wants_it)
    if kept:
        assert is_unseen(loop.report(), "t1")
    else:
        assert waits_of(loop.report("t1"), "t1") == [["task:t0"]]
    loop.stop()
    KEPT.clear()
