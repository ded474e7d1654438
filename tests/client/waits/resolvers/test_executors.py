"""A queued item of an executor waits for its threads, and so does a party that waits for the item."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, thread, wait
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

import pytest
from asgiref.sync import SyncToAsync

from stilltrue.model import has_ended
from stilltrue.protocol.report import PartyTarget
from stilltrue.runtime.introspection.cut.observation import Observer
from stilltrue.runtime.introspection.cut.waits_at_cut import SeenAtCut
from stilltrue.runtime.waits.resolvers import executors
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front, is_unseen, targets


def test_a_waiter_for_a_queued_item_waits_for_one_of_the_busy_threads(front: Front) -> None:
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
    executor.shutdown(wait=False, cancel_futures=True)  # which no other test does
    inner[0].set_running_or_notify_cancel()
    wait([whole])


@pytest.mark.parametrize("how", ["result", "wait"])
def test_an_item_that_waits_for_its_own_result_waits_for_itself(front: Front, how: str) -> None:
    submitted = threading.Event()
    own: list[Future[int]] = []

    def item() -> int:
        submitted.wait()
        return own[0].result() if how == "result" else len(wait(own).done)

    with ThreadPoolExecutor(1, "worker") as executor:
        own.append(executor.submit(item))
        submitted.set()
        front.start("caller", own[0].exception)
        assert targets(front.seen("thread:worker_0")) == ["thread:worker_0"]
        assert targets(front.seen("thread:caller")) == ["thread:worker_0"]
        own[0].set_result(1)


def test_a_queued_item_waits_for_a_thread_that_still_runs_the_initializer(front: Front) -> None:
    with ThreadPoolExecutor(1, "worker", initializer=lambda: front.get(b"")) as executor:
        front.start("caller", executor.submit(int).result)
        assert targets(front.seen("thread:caller")) == ["thread:worker_0"]
        front.let_go()


def test_an_executor_that_may_start_another_thread_is_not_full(front: Front) -> None:
    with ThreadPoolExecutor(2, "worker") as executor:
        executor.submit(front.get, b"")
        front.wait_for_callers()
        executor._idle_semaphore.release()  # so the next item starts no thread; the one after it does
        front.start("caller", lambda: executor.submit(int).result())
        report = front.report_when_still("caller")
        assert is_unseen(report, "thread:caller")
        front.let_go()


def test_a_party_that_may_cancel_a_queued_future_is_a_way_out(front: Front) -> None:
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


@pytest.mark.parametrize("drops", [True, False])
def test_a_party_that_drops_the_items_of_an_executor_of_a_librarys_class_is_a_way_out(
    front: Front, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    monkeypatch.setattr(SyncToAsync, "single_thread_executor", executor)
    executor.submit(front.get, b"")
    front.wait_for_callers()
    front.start("caller", partial(_wait_for, executor.submit(int)))
    del executor
    assert _is_way_out(front, _drop if drops else _rest) is drops


class _Jobs:
    def __init__(self) -> None:
        self.executor: Any = None

    def cancel_everything(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


class _Closing:
    def __init__(self) -> None:
        self.executor: Any = None

    def close(self) -> None:
        self.executor.shutdown(wait=False)


_JOBS, _CLOSING = _Jobs(), _Closing()


def _drop_jobs(go: threading.Event) -> None:
    go.wait(60)
    _drop_all()


def _drop_all() -> None:
    _JOBS.cancel_everything()


def _close_jobs(go: threading.Event) -> None:
    go.wait(60)
    _close_all()


def _close_all() -> None:
    _CLOSING.close()


@pytest.mark.parametrize(("later", "drops"), [(_drop_jobs, True), (_close_jobs, False)])
def test_a_party_whose_code_leads_to_an_executor_and_cancels_its_items_is_a_way_out(
    front: Front, later: Callable[[threading.Event], None], drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_codes_of_modules", list)  # this module mentions cancel_futures
    _JOBS.executor = _CLOSING.executor = ThreadPoolExecutor(1, "worker")
    _JOBS.executor.submit(front.get, b"")
    front.wait_for_callers()
    front.start("caller", partial(_wait_for, _JOBS.executor.submit(int)))
    found = _is_way_out(front, later)
    _JOBS.executor = _CLOSING.executor = None
    assert found is drops


def _is_way_out(front: Front, later: Callable[[threading.Event], None]) -> bool:
    """Whether a thread that runs ``later`` may free the caller."""
    go = threading.Event()
    other = threading.Thread(target=later, args=(go,), name="other")
    other.start()
    front.seen("thread:caller")
    look = of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller")
    go.set()
    other.join()
    front.let_go()
    return any("other" in way.text for way in look.ways_out)


def _wait_for(future: Future[int]) -> None:
    with suppress(CancelledError):
        future.exception()


def _drop(go: threading.Event) -> None:
    go.wait(60)
    SyncToAsync.single_thread_executor.shutdown(wait=False, cancel_futures=True)


def _rest(go: threading.Event) -> None:
    go.wait(60)


def test_during_a_cut_a_look_reads_the_waits_of_the_previous_cut(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    executor.submit(front.get, b"")
    front.wait_for_callers()
    front.start("caller", executor.submit(int).exception)
    caller = front.seen("thread:caller").waiter
    observer, wait_of_thread, read = front.agent._observer, Observer._wait_of_thread, list[SeenAtCut]()
    handles = observer.newest.handles_of(caller)

    def reads_meanwhile(*given: Any) -> Any:
        read.append(observer.newest)
        return wait_of_thread(*given)

    monkeypatch.setattr(Observer, "_wait_of_thread", reads_meanwhile)
    report_when(front.agent, lambda _: bool(read))
    assert handles
    assert read[0].handles_of(caller) == handles
    assert caller in read[0].waiting
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


SEVERAL: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda one, _: asyncio.gather(one),
    "shield": lambda one, _: asyncio.shield(one),
    "wait": lambda one, _: asyncio.wait([one]),
    "gather_all": lambda one, other: asyncio.gather(one, other, return_exceptions=True),
}


@pytest.mark.parametrize("how", SEVERAL)
def test_a_task_that_gathers_items_waits_for_the_threads_that_run_them(front: Front, how: str) -> None:
    executor = ThreadPoolExecutor(1, "worker")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await SEVERAL[how](loop.run_in_executor(executor, front.get, b""), loop.run_in_executor(executor, int))

    front.start("loop", lambda: asyncio.run(main()))
    front.wait_for_callers()
    report = report_when(front.agent, lambda report: any("/task:" in wait.waiter for wait in report.waits))
    (seen,) = [wait for wait in report.waits if "/task:" in wait.waiter]
    assert (targets(seen), seen.needs) == (["thread:worker_0"], 1)
    front.let_go()


def test_a_task_that_gathers_futures_without_known_completers_is_active(front: Front) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    seen: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        other = loop.create_future()
        gathered = asyncio.gather(loop.run_in_executor(executor, front.get, b""), other)
        waiting = asyncio.create_task(asyncio.wait([gathered]))
        await asyncio.to_thread(front.wait_for_callers)
        seen.append(await asyncio.to_thread(front.report_when_still))
        other.set_result(None)
        front.let_go()
        await waiting

    asyncio.run(main())
    assert not [wait for wait in seen[0].waits if "/task:" in wait.waiter and "worker_0" in str(wait.among)]
    executor.shutdown()


class Left(threading.Thread):
    """A thread's object as a fork leaves it in the child: it has ended, and keeps what it was begun with."""

    def run(self) -> None:
        pass


@pytest.mark.parametrize("has_thread", [False, True])
def test_what_a_fork_has_left_behind_is_never_taken(front: Front, has_thread: bool) -> None:
    executor = ThreadPoolExecutor(2, "worker")
    left = Left(args=(ref(executor), executor._work_queue))
    left.start()
    left.join()
    threads: Any = executor._threads
    threads.update({left, threading.current_thread() if has_thread else left})
    registry: Any = thread._threads_queues
    registry[left] = executor._work_queue
    executor._idle_semaphore.release()  # a thread was idle
    item = executor.submit(int)
    front.start("caller", item.result)
    if has_thread:
        assert is_unseen(front.report_when_still("caller"), "thread:caller")
    else:
        (target,) = front.seen("thread:caller").among
        assert isinstance(target, PartyTarget)
        assert has_ended(target.party)
    item.set_result(0)
    front.let_go()
