"""Ways out through code that releases another party's lock, makes an executor grow, or signals the main thread."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from stilltrue.runtime.look.ways_out.kinds.releasers import signals_own_process
from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front

FAR_SECONDS = 60.0


class Locks:
    """Locks with a lease: a party that holds one for too long loses it."""

    def __init__(self) -> None:
        self.locks = {"a": threading.Lock()}
        self.over = threading.Event()

    def hold(self, inside: Callable[[], object]) -> None:
        """Hold the lock."""
        with suppress(RuntimeError), self.locks["a"]:
            inside()

    def take(self) -> None:
        """Acquire the lock, and release it."""
        with self.locks["a"]:
            pass

    def expire(self) -> None:
        """Release the lock, whichever party holds it."""
        with suppress(RuntimeError):
            self.locks["a"].release()

    def reap(self) -> None:
        """Release the locks at the end of their lease."""
        self.over.wait(FAR_SECONDS)
        self.expire()

    def count(self) -> None:
        """Only count the locks."""
        self.over.wait(FAR_SECONDS)
        assert len(self.locks) == 1

    def hold_bare(self) -> None:
        """Acquire the lock in another way, and release it."""
        self.over.wait(FAR_SECONDS)
        lock = self.locks["a"]
        lock.acquire()
        lock.release()


@pytest.mark.parametrize(
    ("beside", "expected"), [(Locks.reap, True), (Locks.hold_bare, False), (Locks.count, False)], ids=["reap", "bare", "count"]
)
def test_a_party_that_may_release_anothers_lock_is_a_way_out(
    front: Front, beside: Callable[[Locks], None], expected: bool
) -> None:
    locks = Locks()
    front.hold(locks.hold, lambda: front.get(b""))
    front.start("waiter", locks.take)
    front.start("beside", beside, locks)
    report = front.report_when_still("waiter", "holder", "beside")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    locks.over.set()
    front.let_go()
    assert look.unchanged
    assert any("beside" in way.text for way in look.ways_out) is expected


@pytest.mark.parametrize("how", ["method", "builtin"])
def test_a_timer_that_releases_a_lock_is_a_way_out(front: Front, how: str) -> None:
    locks = Locks()
    front.hold(locks.hold, lambda: front.get(b""))
    front.start("waiter", locks.take)
    timer = threading.Timer(600, locks.expire if how == "method" else locks.locks["a"].release)
    timer.daemon = True
    timer.start()
    report = front.report_when_still("waiter", "holder")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    timer.cancel()
    front.let_go()
    assert look.ways_out


@pytest.mark.parametrize("grows", ["by name", "by text", ""])
def test_a_party_that_may_add_threads_to_an_executor_is_a_way_out(front: Front, grows: str) -> None:
    over = threading.Event()
    executor: Any = ThreadPoolExecutor(1, "worker")

    def grow() -> None:
        over.wait(FAR_SECONDS)
        executor._max_workers += 1
        executor._adjust_thread_count()

    def grow_by_text() -> None:
        over.wait(FAR_SECONDS)
        setattr(executor, "_max_workers", 2)  # noqa: B010

    def idle() -> None:
        over.wait(FAR_SECONDS)
        assert over.is_set()

    executor.submit(front.get, b"")
    front.wait_for_callers()
    front.start("caller", executor.submit(int).result)
    front.start("beside", {"by name": grow, "by text": grow_by_text}.get(grows, idle))
    look = of(look_at(front.agent, front.report_when_still("caller", "beside")), "front/thread:caller")
    over.set()
    front.let_go()
    executor.shutdown()
    assert look.unchanged
    assert any("beside" in way.text for way in look.ways_out) is bool(grows)


def _interrupts() -> None:
    _thread.interrupt_main()


def _kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def _kills_a_child(child: int) -> None:
    os.kill(child, signal.SIGTERM)


def test_a_signal_to_the_own_process_may_interrupt_the_main_thread() -> None:
    assert signals_own_process(frozenset(_interrupts.__code__.co_names))
    assert signals_own_process(frozenset(_kills_itself.__code__.co_names))
    assert not signals_own_process(frozenset(_kills_a_child.__code__.co_names))
