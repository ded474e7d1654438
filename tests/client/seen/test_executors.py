"""What an executor has yet to begin waits for its threads; who asks for it waits with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of, report_when
from tests.client.seen.conftest import Front, is_unseen, targets


def test_who_asks_for_a_queued_item_waits_for_one_of_the_busy_threads(front: Front) -> None:
    with ThreadPoolExecutor(2, "worker") as executor:
        for _ in range(2):
            executor.submit(front.get, b"")
        front.wait_for_callers(2)
        front.start("caller", lambda: executor.submit(int).result())
        seen = front.seen("thread:caller")
        assert (sorted(targets(seen)), seen.needs) == (["thread:worker_0", "thread:worker_1"], 1)
        front.let_go()


@pytest.mark.parametrize("how", ["result", "wait"])
def test_an_item_that_waits_for_an_item_of_its_own_executor_waits_for_itself(front: Front, how: str) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    inner: list[Future[int]] = []

    def outer() -> int:
        inner.append(executor.submit(int))
        return inner[0].result() if how == "result" else len(wait(inner).done)

    whole = executor.submit(outer)
    assert targets(front.seen("thread:worker_0")) == ["thread:worker_0"]
    executor.shutdown(wait=False, cancel_futures=True)  # as nobody else would
    inner[0].set_running_or_notify_cancel()
    wait([whole])


def test_an_executor_that_may_start_another_thread_holds_nobody_up(front: Front) -> None:
    with ThreadPoolExecutor(2, "worker") as executor:
        executor.submit(front.get, b"")
        front.wait_for_callers()
        executor._idle_semaphore.release()  # so the next item starts no thread; the one after it does
        front.start("caller", lambda: executor.submit(int).result())
        report = front.report_when_still("caller")
        assert is_unseen(report, "thread:caller")
        front.let_go()


def test_who_holds_a_queued_future_and_may_cancel_it_is_a_way_out(front: Front) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    executor.submit(front.get, b"")
    front.wait_for_callers()
    queued = executor.submit(int)
    front.start("caller", queued.exception)
    timer = threading.Timer(60, queued.cancel)
    timer.start()
    front.seen("thread:caller")
    look = of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller")
    assert look.ways_out
    timer.cancel()
    front.let_go()
    executor.shutdown()


AWAITS: dict[str, Callable[[], Any]] = {
    "run_in_executor": lambda: asyncio.get_running_loop().run_in_executor(None, int),
    "to_thread": lambda: asyncio.to_thread(int),
}


@pytest.mark.parametrize("how", AWAITS)
def test_a_task_that_awaits_a_queued_item_waits_for_the_busy_threads(front: Front, how: str) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    executor.submit(front.get, b"")
    front.wait_for_callers()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(executor)
        await AWAITS[how]()

    front.start("loop", lambda: asyncio.run(main()))
    report = report_when(front.agent, lambda report: any("/task:" in wait.waiter for wait in report.waits))
    (seen,) = [wait for wait in report.waits if "/task:" in wait.waiter]
    assert targets(seen) == ["thread:worker_0"]
    front.let_go()
