"""Locks on an event loop: asyncio's locks and bounded semaphores, and a thread's lock that a task keeps over an await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from stilltrue.protocol.report import PartyTarget, Report
from stilltrue.runtime.compat import is_being_cancelled
from tests.client.look.worlds import look_at, report_of, report_when
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, targets

Body = Callable[["Loop"], Awaitable[object]]


class Loop:
    """A loop in a thread of the front, with the test's named tasks; ``go`` lets those end that should."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.go = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[Any]] = []

    def run(self, *bodies: Body) -> None:
        """Start these as the tasks ``t0``, ``t1`` and so on, one after the other."""
        begun = threading.Event()

        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            for number, body in enumerate(bodies):
                self.tasks.append(asyncio.create_task(body(self), name=f"t{number}"))  # type: ignore[arg-type]
            for _ in range(5):
                await asyncio.sleep(0)
            begun.set()
            await self.go.wait()
            for task in self.tasks:
                task.cancel()
            await asyncio.wait(self.tasks, timeout=1)

        self.front.start("loop", lambda: asyncio.run(main()))
        assert begun.wait(PATIENCE_SECONDS)

    def report(self, *waiters: str) -> Report:
        """The report once these tasks are seen to wait."""
        return report_when(self.front.agent, lambda report: all(waits_of(report, waiter) for waiter in waiters))

    def stop(self) -> None:
        """End the tasks and the loop."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.go.set)
        self.front.let_go()


def waits_of(report: Report, task: str) -> list[list[str]]:
    """The parties that a task waits for, by wait."""
    waits = [wait for wait in report.waits if wait.waiter.endswith(f"task:{task}")]
    return [targets(wait) for wait in waits if isinstance(wait.among[0], PartyTarget)]


def taking(*locks: Any, first: Callable[[], Awaitable[object]] | None = None) -> Body:
    """Acquire these one inside the other, and keep them forever."""

    async def body(loop: Loop) -> None:
        async with locks[0]:
            await (asyncio.sleep(0) if first is None else first())
            if locks[1:]:
                await taking(*locks[1:])(loop)
            await asyncio.sleep(1_000)

    return body


@pytest.mark.parametrize("kind", [asyncio.Lock, asyncio.Condition])
def test_two_locks_in_opposite_orders_deadlock(front: Front, kind: Callable[[], Any]) -> None:
    loop, one, other = Loop(front), kind(), kind()
    loop.run(taking(one, other), taking(other, one))
    report = loop.report("t0", "t1")
    assert (waits_of(report, "t0"), waits_of(report, "t1")) == ([["task:t1"]], [["task:t0"]])
    assert all(one.unchanged and not one.doubt for one in look_at(front.agent, report).parties)
    loop.stop()


def test_a_task_waiting_for_a_bounded_semaphore_waits_for_its_holders(front: Front) -> None:
    loop, shares = Loop(front), asyncio.BoundedSemaphore(2)
    loop.run(taking(shares), taking(shares), taking(shares))
    assert [sorted(found) for found in waits_of(loop.report("t2"), "t2")] == [["task:t0", "task:t1"]]
    loop.stop()


async def _bare(loop: Loop) -> None:
    await loop.lock.acquire()  # type: ignore[attr-defined]
    await asyncio.sleep(1_000)


async def _hands_over(loop: Loop) -> None:
    lock = loop.lock  # type: ignore[attr-defined]
    async with lock:
        lock.release()
        await asyncio.sleep(1_000)


async def _waits(loop: Loop) -> None:
    async with loop.condition:  # type: ignore[attr-defined]
        await asyncio.wait_for(loop.condition.wait(), PATIENCE_SECONDS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("holder", [_bare, _hands_over, _waits])
def test_a_lock_without_a_certain_holder_has_no_known_holder(front: Front, holder: Body) -> None:
    loop: Any = Loop(front)
    loop.lock = asyncio.Lock()
    loop.condition = asyncio.Condition(loop.lock)
    loop.run(holder, _bare, _bare)
    assert waits_of(report_of(front.agent), "t2") == []
    loop.stop()


def test_a_thread_waits_for_the_task_that_holds_its_lock_across_an_await(front: Front) -> None:
    loop, lock = Loop(front), threading.Lock()

    async def keeps(_: Loop) -> None:
        with lock:
            await asyncio.sleep(1_000)

    def takes() -> None:
        with lock:
            pass

    loop.run(keeps)
    assert front.waits_for(takes) == ["task:t0"]
    loop.stop()


def test_a_task_that_blocks_its_loop_on_another_tasks_lock_is_in_a_cycle(front: Front) -> None:
    loop, lock = Loop(front), threading.Lock()
    inside = threading.Event()

    async def keeps(_: Loop) -> None:
        with suppress(RuntimeError), lock:
            inside.set()
            await asyncio.sleep(1_000)

    async def blocks(_: Loop) -> None:
        with suppress(RuntimeError), lock:
            pass

    begun = threading.Thread(target=lambda: loop.run(keeps, blocks), daemon=True)
    begun.start()
    report = loop.report("t0", "t1")
    assert (waits_of(report, "t0"), waits_of(report, "t1")) == ([["task:t1"]], [["task:t0"]])
    lock.release()  # which no other test releases
    begun.join(PATIENCE_SECONDS)
    loop.stop()


def test_a_cancelled_task_that_cleans_up_waits_like_any_other(front: Front) -> None:
    def waits_for_the_holder(report: Report) -> bool:
        return any(one.startswith("task:Task-") for among in waits_of(report, "worker") for one in among)

    async def main() -> None:
        lock = asyncio.Lock()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                async with lock:
                    pass

        worker = asyncio.create_task(work(), name="worker")
        await asyncio.sleep(0)
        async with lock:
            worker.cancel()
            await asyncio.to_thread(report_when, front.agent, waits_for_the_holder)
        await asyncio.wait([worker])

    asyncio.run(main())


async def test_a_cancellation_passed_on_later_is_pending() -> None:
    class Slow(asyncio.Future[None]):
        def cancel(self, msg: Any = None) -> bool:
            return True

    slow, plain = Slow(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await plain
        await plain_again

    plain_again = asyncio.get_running_loop().create_future()
    waiting, cleaning = asyncio.ensure_future(_await(slow)), asyncio.create_task(work())
    await asyncio.sleep(0)
    assert not is_being_cancelled(waiting)
    for task in (waiting, cleaning):
        task.cancel()
    assert is_being_cancelled(waiting)
    await asyncio.sleep(0)
    assert is_being_cancelled(waiting)
    assert not is_being_cancelled(cleaning)
    slow.set_result(None)
    plain_again.set_result(None)
    await asyncio.wait([waiting, cleaning])


async def _await(future: asyncio.Future[None]) -> None:
    await future
