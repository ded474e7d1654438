"""A thread that waits for a lock of multiprocessing waits for the party that holds it, in whatever process."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from stilltrue.protocol.report import Hold, LocalWait, Report, ResourceTarget
from stilltrue.runtime.waits.resolvers.shared_locks import name_of
from stilltrue.runtime.waits.shared_lock_holders import _count
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the semaphore's name is Linux's")
SPAWN = multiprocessing.get_context("spawn")


def hold_in_block(lock: Any, call: Callable[[bytes], Any]) -> None:
    with lock:
        call(b"")


def hold_by_bracket(lock: Any, call: Callable[[bytes], Any]) -> None:
    lock.acquire()
    try:
        call(b"")
    finally:
        lock.release()


def enter(lock: Any) -> None:
    with lock:
        pass


def acquire(lock: Any) -> None:
    lock.acquire()
    lock.release()


def acquire_in_time(lock: Any) -> None:
    if lock.acquire(timeout=15):
        lock.release()


def wait_of(report: Report) -> LocalWait | None:
    """The waiter's wait for a resource."""
    found = [one for one in report.waits if one.waiter == "front/thread:waiter" and isinstance(one.among[0], ResourceTarget)]
    return found[0] if found else None


def holds_of(report: Report) -> list[Hold]:
    return [one for one in report.holds if one.resource.startswith("semaphore ")]


@pytest.mark.parametrize("make", [SPAWN.Lock, SPAWN.RLock, multiprocessing.get_context("fork").Lock])
@pytest.mark.parametrize("hold", [hold_in_block, hold_by_bracket])
@pytest.mark.parametrize("wait", [enter, acquire])
def test_who_waits_for_a_shared_lock_waits_for_its_holder(front: Front, make: Any, hold: Any, wait: Any) -> None:
    lock = make()
    front.hold(hold, lock, front.get)
    front.start("waiter", wait, lock)
    report = front.report_when_still("waiter")
    assert wait_of(report).among == (ResourceTarget(resource=name_of(lock)),)  # type: ignore[union-attr,arg-type]
    assert holds_of(report) == [Hold(party="front/thread:holder", resource=name_of(lock))]  # type: ignore[arg-type]
    look = look_at(front.agent, report)
    assert of(look, "front/thread:waiter").unchanged
    assert of(look, "front/thread:holder").unchanged
    front.let_go()


def acquire_again_and_again(lock: Any) -> None:
    for _ in range(50):
        lock.acquire()
        lock.release()


def test_a_hot_call_is_seen(front: Front) -> None:
    """CPython 3.11 makes the call one instruction earlier, once it has made it a few times."""
    lock = SPAWN.Lock()
    acquire_again_and_again(SPAWN.Lock())
    front.hold(hold_in_block, lock, front.get)
    front.start("waiter", acquire_again_and_again, lock)
    seen = wait_of(front.report_when_still("waiter"))
    assert seen is not None
    assert seen.among == (ResourceTarget(resource=name_of(lock)),)  # type: ignore[arg-type]
    front.let_go()


def test_only_its_owner_releases_a_reentrant_lock(front: Front) -> None:
    """The tests' own files call ``release``, so another process of this program may release a plain lock."""
    for lock, doubts in ((SPAWN.RLock(), False), (SPAWN.Lock(), True)):
        holder = front.start("holder", hold_in_block, lock, front.get)
        front.wait_for_callers()
        waiter = front.start("waiter", enter, lock)
        seen = of(look_at(front.agent, front.report_when_still("waiter")), "front/thread:holder")
        assert ("another process may release" in seen.doubt) == doubts
        front._stuck.go.set()
        holder.join()
        waiter.join()
        front._stuck.go.clear()
    front.let_go()


def test_a_wait_with_a_timeout_is_none(front: Front) -> None:
    lock = SPAWN.Lock()
    front.hold(hold_in_block, lock, front.get)
    front.start("waiter", acquire_in_time, lock)
    end = time.monotonic() + 0.5
    assert wait_of(report_when(front.agent, lambda _: time.monotonic() > end)) is None
    front.let_go()


def tell(lock: Any, answer: Connection) -> None:
    answer.send((name_of(lock), _count(lock)))


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_has_the_lock_under_the_same_name_and_does_not_hold_what_its_parent_holds(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[4])
    context: Any = multiprocessing.get_context(method)
    lock, (reader, writer) = context.Lock(), context.Pipe()
    with lock:
        child = context.Process(target=tell, args=(lock, writer))
        child.start()
        assert reader.poll(30)
        assert reader.recv() == (name_of(lock), 0)
        child.join()
        assert _count(lock) == 1
    assert name_of(context.Lock()) != name_of(lock)
