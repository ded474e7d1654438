"""Who asks again and again whether a thread, a future, a task or a process has ended waits for that, and does nothing else."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TimeoutError_
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue.protocol.report import ResourceTarget
from tests.client.look.worlds import look_at, of, report_of, report_when
from tests.client.waits.conftest import Front, is_unseen, seen_in, targets
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of

OTHER = SimpleNamespace(calls=0)


def by_join(thread: Any) -> None:
    while thread.is_alive():
        thread.join(0.2)


def by_join_by_name(thread: Any) -> None:
    while thread.is_alive():
        thread.join(timeout=0.2)


def by_sleep(thread: Any) -> None:
    while thread.is_alive():
        time.sleep(0.2)


def until_a_break(thread: Any) -> None:
    while True:
        thread.join(0.2)
        if not thread.is_alive():
            break


def one_by_one(thread: Any) -> None:
    for each in [thread]:
        while each.is_alive():
            each.join(0.2)


def at_most_a_while(thread: Any) -> None:
    end = time.monotonic() + 15
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.2)


def a_few_times(thread: Any) -> None:
    for _ in range(75):
        if thread.is_alive():
            thread.join(0.2)


def with_something_to_do(thread: Any) -> None:
    while thread.is_alive():
        thread.join(0.2)
        OTHER.calls.bit_length()


def in_an_attribute(thread: Any) -> None:
    OTHER.thread = thread
    while OTHER.thread.is_alive():
        OTHER.thread.join(0.2)


def in_a_variable_of_two_functions(thread: Any) -> Callable[[], Any]:
    def forget() -> None:
        nonlocal thread
        thread = None

    while thread.is_alive():
        thread.join(0.2)
    return forget


def until_ctrl_c(thread: Any) -> None:
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        OTHER.calls += 1


def once(thread: Any) -> None:
    thread.join(15)


class Stubborn(threading.Thread):
    """A thread that says itself whether it is alive."""

    def is_alive(self) -> bool:
        return super().is_alive()


def wait_for_call(front: Front, kind: type[threading.Thread], wait: Callable[..., object]) -> None:
    """Start a thread that waits for a call, and another that waits for its end."""
    other = kind(target=lambda: front.get(b""), name="other", daemon=True)
    other.start()
    front.wait_for_callers()
    front.start("waiter", wait, other)


@pytest.mark.parametrize("wait", [by_join, by_join_by_name, by_sleep, until_a_break, one_by_one])
def test_it_waits_for_the_threads_end(front: Front, wait: Callable[..., object]) -> None:
    wait_for_call(front, threading.Thread, wait)
    for _ in range(3):
        assert targets(front.seen("thread:waiter")) == ["thread:other"]
    report = report_when(front.agent, lambda report: not is_unseen(report, "thread:waiter"))
    time.sleep(0.5)  # it asks meanwhile
    assert of(look_at(front.agent, report), seen_in(report, "thread:waiter").waiter).unchanged
    front.let_go()


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        (threading.Thread, at_most_a_while),
        (threading.Thread, a_few_times),
        (threading.Thread, with_something_to_do),
        (threading.Thread, in_an_attribute),
        (threading.Thread, in_a_variable_of_two_functions),
        (threading.Thread, until_ctrl_c),
        (threading.Thread, once),
        (Stubborn, by_join),
    ],
)
def test_it_does_not_if_it_may_do_anything_else(
    front: Front, kind: type[threading.Thread], wait: Callable[..., object]
) -> None:
    wait_for_call(front, kind, wait)
    end = time.monotonic() + 0.6
    assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
    front.let_go()


def until_done(future: Any) -> None:
    while not future.done():
        time.sleep(0.05)


def until_it_has_a_result(future: Any) -> None:
    while True:
        try:
            future.result(timeout=0.2)
            break
        except TimeoutError_:
            continue


def until_it_has_a_result_or_late(future: Any) -> None:
    tries = 0
    while tries < 75:
        try:
            future.result(timeout=0.2)
            break
        except TimeoutError_:
            tries += 1


def until_done_or_late(future: Any) -> None:
    end = time.monotonic() + 15
    while not future.done() and time.monotonic() < end:
        time.sleep(0.05)


def while_done(future: Any) -> None:
    while not future.cancelled():
        time.sleep(0.05)
        if future.done():
            break


class Hasty(Future[Any]):
    """A future that says itself whether it is done."""

    def done(self) -> bool:
        return super().done()


@pytest.mark.parametrize("until_done", [until_done, until_it_has_a_result])
def test_who_asks_whether_a_future_is_done_waits_for_the_thread_that_runs_it(
    front: Front, until_done: Callable[..., object]
) -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        running = pool.submit(front.get, b"")
        front.wait_for_callers()
        front.start("waiter", until_done, running)
        assert targets(front.seen("thread:waiter")) == ["thread:pool_0"]
        front.start("other", until_done, pool.submit(int))
        report = report_when(front.agent, lambda report: not is_unseen(report, "thread:other"))
        assert targets(seen_in(report, "thread:other")) == ["thread:pool_0"]
        time.sleep(0.2)  # it asks meanwhile
        seen = of(look_at(front.agent, report), seen_in(report, "thread:other").waiter)
        assert (seen.unchanged, {one.party for one in seen.ways_out} - {"front/thread:pool_0"}) == (True, set())
        front.let_go()


def until_acquired(lock: Any) -> None:
    while not lock.acquire(timeout=0.2):
        pass
    try:
        OTHER.calls += 1
    finally:
        lock.release()


def until_acquired_or_late(lock: Any) -> None:
    for _ in range(75):
        if lock.acquire(timeout=0.2):
            try:
                OTHER.calls += 1
            finally:
                lock.release()
            break


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, lambda: threading.BoundedSemaphore(1)])
def test_who_tries_again_and_again_to_acquire_a_lock_waits_for_its_holder(front: Front, make: Callable[[], Any]) -> None:
    lock = make()

    def hold() -> None:
        with lock:
            front.get(b"")

    front.start("holder", hold)
    front.wait_for_callers()
    front.start("waiter", until_acquired, lock)
    front.start("other", until_acquired_or_late, lock)
    report = report_when(front.agent, lambda report: not is_unseen(report, "thread:waiter"))
    assert targets(seen_in(report, "thread:waiter")) == ["thread:holder"]
    assert is_unseen(report, "thread:other")
    time.sleep(0.5)  # it tries meanwhile
    assert of(look_at(front.agent, report), seen_in(report, "thread:waiter").waiter).unchanged
    front.let_go()


@pytest.mark.parametrize("wait", [until_done_or_late, until_it_has_a_result_or_late, while_done])
def test_who_may_also_stop_asking_waits_for_nobody(front: Front, wait: Callable[..., object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(front.get, b"")
        front.wait_for_callers()
        front.start("waiter", wait, running)
        end = time.monotonic() + 0.5
        assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
        front.let_go()


def test_a_future_that_says_itself_whether_it_is_done_is_unknown(front: Front) -> None:
    future = Hasty()

    def complete() -> None:
        front.get(b"")
        future.set_result(None)

    front.start("other", complete)
    front.wait_for_callers()
    front.start("waiter", until_done, future)
    end = time.monotonic() + 0.5
    assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
    front.let_go()


def test_who_asks_whether_a_process_is_alive_waits_for_its_end(front: Front) -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    front.start("joining", by_join, process)
    front.start("sleeping", by_sleep, process)

    def resources() -> list[str]:
        among = [one.among[0] for one in report_of(front.agent).waits if one.waiter.endswith(("joining", "sleeping"))]
        return [one.resource for one in among if isinstance(one, ResourceTarget)]

    report_when(front.agent, lambda _: len(resources()) == 2)
    assert all(one.startswith(f"end of process {process.pid}:") for one in resources())
    process.kill()
    front.let_go()


async def stays(_: Loop) -> None:
    await asyncio.sleep(1_000)


async def asks(loop: Loop) -> None:
    task = loop.tasks[0]
    while not task.done():
        await asyncio.sleep(0.3)


async def asks_until_it_is_late(loop: Loop) -> None:
    task, end = loop.tasks[0], time.monotonic() + 15
    while not task.done() and time.monotonic() < end:
        await asyncio.sleep(0.05)


async def asks_for_a_while(loop: Loop) -> None:
    async with asyncio.timeout(1_000):
        await asks(loop)


async def asks_and_counts(loop: Loop) -> None:
    task, count = loop.tasks[0], 0
    while not task.done():
        await asyncio.sleep(0.3)
        count += 1


async def asks_and_does_something(loop: Loop) -> None:
    task = loop.tasks[0]
    while not task.done():
        await asyncio.sleep(0.05)
        OTHER.calls.bit_length()


@pytest.mark.parametrize("body", [asks, asks_and_counts])
def test_a_task_that_asks_whether_another_is_done_waits_for_it(front: Front, body: Any) -> None:
    loop = Loop(front)
    loop.run(stays, body)
    report = loop.report("t1")
    assert waits_of(report, "t1") == [["task:t0"]]
    time.sleep(0.5)  # it asks meanwhile; while it does, it may go on
    waiter = next(one.waiter for one in report.waits if one.waiter.endswith("task:t1"))
    seen = of(look_at(front.agent, report), waiter)
    assert (seen.unchanged, seen.deadline, seen.doubt) == (True, None, "")
    assert None not in [one.party for one in seen.ways_out]
    numbers = {one.number for one in report.waits if one.waiter == waiter}
    assert {one.number for one in loop.report("t1").waits if one.waiter == waiter} == numbers
    loop.stop()


@pytest.mark.parametrize("body", [asks_until_it_is_late, asks_and_does_something])
def test_a_task_that_does_anything_else_waits_for_nobody(front: Front, body: Any) -> None:
    loop = Loop(front)
    loop.run(stays, body)
    end = time.monotonic() + 0.5
    assert waits_of(report_when(front.agent, lambda _: time.monotonic() > end), "t1") == []
    loop.stop()


@pytest.mark.skipif(not hasattr(asyncio, "timeout"), reason="this Python has no asyncio.timeout")
def test_a_task_that_asks_within_a_timeout_has_a_deadline(front: Front) -> None:
    loop = Loop(front)
    loop.run(stays, asks_for_a_while)
    wait = next(one for one in loop.report("t1").waits if one.waiter.endswith("task:t1"))
    assert wait.deadline is not None
    loop.stop()
