"""Which calls of ``acquire()`` wait for as long as it takes: by their code, and as the waits of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.acquire_calls import endless_call, is_endless
from tests.client.look.worlds import report_when
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, is_unseen
from tests.client.waits.taking import by_finally
from tests.client.waits.test_thread_waits import needs_memory

ENDLESS: list[Callable[[Any], Any]] = [
    lambda lock: lock.acquire(),
    lambda lock: lock.acquire(True),
    lambda lock: lock.acquire(1),
    lambda lock: lock.acquire(blocking=True),
    lambda lock: lock.acquire(block=True),
    lambda lock: lock.acquire(True, None),
    lambda lock: lock.acquire(True, timeout=None),
    lambda lock: lock.acquire(block=True, timeout=None),
]
OTHERS: list[Callable[[Any], Any]] = [
    lambda lock: lock.acquire(False),
    lambda lock: lock.acquire(0),
    lambda lock: lock.acquire(blocking=False),
    lambda lock: lock.acquire(True, 15),
    lambda lock: lock.acquire(timeout=15),
    lambda lock: lock.acquire(timeout=-1),
    lambda lock: lock.acquire(timeout=None, blocking=False),
    lambda lock: lock.acquire(wait=True),
    lambda lock: lock.acquire(*lock.given),
    lambda lock: lock.acquire(lock.wait),
    lambda lock: lock.acquire(True) if lock else lock.acquire,
]


def _call(function: Callable[[Any], Any], name: str = "acquire") -> int | None:
    every = tuple(instructions(function.__code__))
    return endless_call(every, max(index for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == name))


@pytest.mark.parametrize("function", ENDLESS)
def test_a_call_without_a_timeout_is_endless(function: Callable[[Any], Any]) -> None:
    assert _call(function) is not None


@pytest.mark.parametrize("function", OTHERS)
def test_any_other_is_not(function: Callable[[Any], Any]) -> None:
    assert _call(function) is None


def test_an_argument_is_given_once() -> None:
    assert is_endless([True])
    assert not is_endless([True, None, None])
    assert not is_endless([True], ["blocking", "timeout"])
    assert is_endless([True, -1], waits_at_minus_one=True)
    assert not is_endless([True, -1])
    assert not is_endless([object()])


def told_to_wait(lock: Any) -> None:
    lock.acquire(True)
    lock.release()


def told_to_wait_by_name(lock: Any) -> None:
    lock.acquire(blocking=True)
    lock.release()


def told_how_long_to_wait(lock: Any) -> None:
    if lock.acquire(True, PATIENCE_SECONDS):
        lock.release()


def told_by_a_variable(lock: Any, wait: bool = True) -> None:
    lock.acquire(wait)
    lock.release()


def told_by_variables(lock: Any, blocking: bool = True, timeout: float = -1) -> None:
    lock.acquire(timeout=timeout, blocking=blocking)
    lock.release()


def told_by_a_variable_how_long(lock: Any, timeout: float = PATIENCE_SECONDS) -> None:
    if lock.acquire(True, timeout):
        lock.release()


def told_by_a_branch(lock: Any, deadline: float | None = None) -> None:
    if lock.acquire(blocking=True, timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
        lock.release()


def told_by_a_call(lock: Any) -> None:
    acquire = lock.acquire
    acquire(bool(lock), float("-1"))
    lock.release()


def told_by_a_branch_how_long(lock: Any, deadline: float | None = None) -> None:
    if lock.acquire(True, -1 if deadline else PATIENCE_SECONDS):
        lock.release()


def told_by_a_branch_not_to_wait(lock: Any, deadline: float | None = None) -> None:
    while not lock.acquire(bool(deadline)):
        time.sleep(0.01)
    lock.release()


class Passing:
    """A lock around another one, which passes its arguments on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Any:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class PassingByName(Passing):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking=blocking, timeout=timeout)


class Entering(Passing):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    __enter__ = acquire


class EnteringInTime(Passing):
    def acquire(self, blocking: bool = True, timeout: float = PATIENCE_SECONDS) -> bool:
        return self._lock.acquire(blocking, timeout)

    __enter__ = acquire


class Limited(Passing):
    def acquire(self, blocking: bool = True, timeout: float = PATIENCE_SECONDS) -> bool:
        return self._lock.acquire(blocking, timeout)


class LimitedAtLast(Passing):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        timeout = PATIENCE_SECONDS
        return self._lock.acquire(blocking, timeout)


class Entered(Passing):
    def __enter__(self) -> Any:
        self.acquire(True, PATIENCE_SECONDS)
        return self


def in_its_block(lock: Any, inside: Callable[[], Any]) -> None:
    with lock:
        inside()


@pytest.mark.parametrize("hold", [in_its_block, by_finally])
@pytest.mark.parametrize("kind", [Passing, PassingByName, Entering])
def test_a_lock_that_passes_its_arguments_on_is_held_and_waited_for(front: Front, kind: Any, hold: Any) -> None:
    lock = kind()
    front.hold(hold, lock, lambda: front.get(b""))
    assert front.waits_for(in_its_block, lock, int) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("kind", [Limited, LimitedAtLast, Entered, EnteringInTime])
def test_one_that_passes_a_timeout_on_is_not(front: Front, kind: Any) -> None:
    lock = kind()
    front.hold(in_its_block, lock, lambda: front.get(b""))
    front.start("waiter", in_its_block, lock, int)
    end = time.monotonic() + 0.5
    assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
    front.let_go()


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("wait", [told_to_wait, told_to_wait_by_name, told_by_a_variable, told_by_variables])
def test_a_thread_that_is_told_to_wait_waits_for_the_holder(front: Front, kind: Any, wait: Callable[..., None]) -> None:
    lock = kind()
    front.hold(by_finally, lock, lambda: front.get(b""))
    assert front.waits_for(wait, lock) == ["thread:holder"]
    front.let_go()


@needs_memory
@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("wait", [told_by_a_branch, told_by_a_call])
def test_the_arguments_may_be_the_values_of_any_expressions(front: Front, kind: Any, wait: Callable[..., None]) -> None:
    lock = kind()
    front.hold(by_finally, lock, lambda: front.get(b""))
    assert front.waits_for(wait, lock) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize(
    "wait",
    [told_how_long_to_wait, told_by_a_variable_how_long, told_by_a_branch_how_long, told_by_a_branch_not_to_wait],
)
def test_a_thread_that_is_told_anything_else_does_not(front: Front, wait: Callable[..., None]) -> None:
    lock = threading.Lock()
    front.hold(by_finally, lock, lambda: front.get(b""))
    front.start("waiter", wait, lock)
    end = time.monotonic() + 0.5
    assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
    front.let_go()
