"""What a function releases without having acquired it, and where it may hold what it has acquired."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue.runtime.waits.orphaned_locks.balance import codes_ahead, uses_of

lock = threading.Lock()
MEANT = (("name", "lock"),)


def straight() -> None:
    lock.acquire()
    print()
    lock.release()


def on_one_path(some: Any) -> None:
    lock.acquire()
    if some:
        raise ValueError
    lock.release()


def in_a_loop(some: Any) -> None:
    while some():
        lock.acquire()
        try:
            some()
        finally:
            lock.release()


async def awaited(lock: Any) -> None:
    await lock.acquire()
    lock.release()


def elsewhere() -> None:
    lock.release()


def only_sometimes(some: Any) -> None:
    if some:
        lock.acquire()
    lock.release()


def twice(some: Any) -> None:
    lock.acquire()
    lock.release()
    if some:
        lock.release()


def in_its_own_block() -> None:
    with lock:
        lock.release()


def handed_on(some: Any) -> None:
    lock.acquire()
    some(lock.release)


def with_a_time_limit() -> None:
    if lock.acquire(timeout=3):
        lock.release()


def another_meanwhile(lock: Any, other: Any) -> None:
    lock.acquire()
    lock = other
    lock.release()


@pytest.mark.parametrize("function", [straight, on_one_path, in_a_loop, awaited])
def test_a_lock_acquired_on_every_path_is_the_functions_own(function: Callable[..., Any]) -> None:
    uses = uses_of(function.__code__)
    assert (set(uses.own), set(uses.unowned)) == ({MEANT}, set())
    assert uses.held is not None
    assert uses.held[MEANT]


OTHERS = [elsewhere, only_sometimes, twice, in_its_own_block, handed_on, with_a_time_limit, another_meanwhile]


@pytest.mark.parametrize("function", OTHERS)
def test_a_release_without_an_acquire_on_some_path_is_anothers(function: Callable[..., Any]) -> None:
    uses = uses_of(function.__code__)
    assert (set(uses.own), set(uses.unowned)) == (set(), {MEANT})


def test_a_function_defined_behind_the_position_is_not_made_again() -> None:
    module = compile("def first(): pass\nwait()\ndef second(): pass\n", "<module>", "exec")
    names = [one.co_name for one in codes_ahead(module, len(module.co_code) // 2)]
    assert names == ["second"]
    loop = compile("while wait():\n  def first(): pass\n  wait()\n", "<module>", "exec")
    assert [one.co_name for one in codes_ahead(loop, len(loop.co_code) - 2)] in (["first"], [])
    assert [one.co_name for one in codes_ahead(loop, 0)] == ["first"]
