"""Code that may add workers to a server's pool is reported: its queued items then begin, whatever the workers wait for."""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, thread
from functools import partial
from typing import Any
from weakref import ref

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from tests.client.look.worlds import Stuck, look_at, of, report_when, serving

FAR_SECONDS = 600.0
Beside = Callable[[ThreadPoolExecutor, threading.Event], object]


class Resizable(ThreadPoolExecutor):
    """A pool that can be enlarged."""

    def resize(self, workers: int) -> None:
        """Set the number of workers."""
        self._max_workers = workers
        self._adjust_thread_count()

    def busy(self) -> float:
        """The share of possible workers that exist."""
        return len(self._threads) / self._max_workers


class GrowsWithWork(ThreadPoolExecutor):
    """A pool that grows on submit when it has much to do."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._work_queue.qsize() > 0:
            self._grow()
        return super().submit(fn, *args, **kwargs)

    def _grow(self) -> None:
        self._max_workers += 1


class Overflowing(ThreadPoolExecutor):
    """A pool that starts a thread for an item when it has much to do."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._work_queue.qsize() < 10:
            return super().submit(fn, *args, **kwargs)
        done = Future[Any]()
        threading.Thread(target=lambda: done.set_result(fn(*args, **kwargs))).start()
        return done


class WithContext(ThreadPoolExecutor):
    """A pool whose workers see the context variables of the submitter."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


def outright(pool: ThreadPoolExecutor, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    pool._max_workers += 1
    pool._adjust_thread_count()


def by_its_method(pool: Resizable, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    pool.resize(8)


def when_much_is_queued(pool: ThreadPoolExecutor, go: threading.Event) -> None:
    while not go.wait(0.05):
        if pool._work_queue.qsize() > 100:
            pool._max_workers += 1


def by_a_text(pool: ThreadPoolExecutor, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    setattr(pool, "_max_workers", 8)  # noqa: B010


def by_a_worker_of_its_own(pool: ThreadPoolExecutor, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    worker: Any = thread._worker
    threading.Thread(target=worker, args=(ref(pool), pool._work_queue, None, ()), daemon=True).start()


def by_a_list_of_jobs(pool: Resizable, go: threading.Event) -> None:
    jobs = [partial(pool.resize, 8)]
    del pool
    go.wait(FAR_SECONDS)
    for job in jobs:
        job()


def measures(pool: Resizable, go: threading.Event) -> None:
    meter = [0.0]
    while not go.wait(0.05):
        meter[0] = pool._work_queue.qsize() / pool._max_workers + pool.busy()


def enlarges_another(pool: ThreadPoolExecutor, go: threading.Event) -> None:
    other = ThreadPoolExecutor(1)
    assert pool is not other
    del pool
    go.wait(FAR_SECONDS)
    other._max_workers += 1


def seen(alone: Callable[..., Agent], stuck: Stuck, pool: ThreadPoolExecutor, beside: Beside | None = None) -> str:
    """The actor that may enlarge the pool in which a handler is stuck in a call."""
    look = looked_at(alone, stuck, pool, beside)
    assert not look.doubt
    return look.grown_by


def looked_at(alone: Callable[..., Agent], stuck: Stuck, pool: ThreadPoolExecutor, beside: Beside | None = None) -> PartyLook:
    """The look at a handler of this pool that is stuck in a call."""
    front, back = alone("front"), alone("back")
    go = threading.Event()
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        with serving(front, pool=pool, Do=lambda request, _: get(request)) as door, grpc.insecure_channel(door) as outside:
            do: Any = outside.unary_unary("/s/Do")
            call = do.future(b"")
            stuck.wait_for_callers()
            given = [pool]
            other = threading.Thread(target=lambda: beside(given.pop(), go) if beside is not None else None)
            other.start()
            time.sleep(0.1)
            report = report_when(front, lambda report: any(wait.waiter.startswith("front/Do") for wait in report.waits))
            look = of(look_at(front, report), "front/Do")
            stuck.go.set()
            go.set()
            other.join()
            call.result()
    assert look.unchanged
    assert front.live.faults == 0
    return look


GROW = (outright, by_its_method, when_much_is_queued, by_a_text, by_a_worker_of_its_own, by_a_list_of_jobs)


@pytest.mark.parametrize("beside", GROW, ids=lambda one: one.__name__)
def test_code_that_enlarges_the_pool_is_reported(alone: Callable[..., Agent], stuck: Stuck, beside: Beside) -> None:
    assert beside.__name__ in seen(alone, stuck, Resizable(1), beside)


@pytest.mark.parametrize("beside", [measures, enlarges_another], ids=lambda one: one.__name__)
def test_code_that_only_reads_the_pools_size_is_not_reported(alone: Callable[..., Agent], stuck: Stuck, beside: Beside) -> None:
    assert seen(alone, stuck, Resizable(1), beside) == ""


@pytest.mark.parametrize(("kind", "grows"), [(GrowsWithWork, True), (Overflowing, True), (WithContext, False)])
def test_a_pool_that_grows_on_submit_is_reported(
    alone: Callable[..., Agent], stuck: Stuck, kind: type[ThreadPoolExecutor], grows: bool
) -> None:
    assert (kind.__name__ in seen(alone, stuck, kind(1))) is grows


_POOLS: list[Resizable] = []


def resizes(request: bytes, _: Any) -> bytes:
    _POOLS[0].resize(int(request))
    return request


def sizes(_: bytes, __: Any) -> bytes:
    return str(_POOLS[0].busy()).encode()


@pytest.mark.parametrize(("method", "doubtful"), [(resizes, True), (sizes, False)])
def test_a_method_of_another_server_that_enlarges_the_pool_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, method: Any, doubtful: bool
) -> None:
    _POOLS[:] = [Resizable(1)]
    with serving(alone("admin"), Resize=method):
        look = looked_at(alone, stuck, _POOLS[0])
    _POOLS.clear()
    assert ("/s/Resize" in look.doubt) is doubtful, look.doubt
    assert not look.ways_out


_JOBS = ThreadPoolExecutor(1)


def hands_on(request: bytes, _: Any) -> bytes:
    return _JOBS.submit(bytes, request).result()


def test_a_method_that_uses_a_pool_is_no_doubt_if_submit_is_wrapped(
    alone: Callable[..., Agent], stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentry wraps it, to pass its scopes on."""
    wrapped: Any = ThreadPoolExecutor.submit

    @functools.wraps(wrapped)
    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return wrapped(self, fn, *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with serving(alone("admin"), Work=hands_on):
        look = looked_at(alone, stuck, ThreadPoolExecutor(1))
    assert "/s/Work" not in look.doubt


def test_the_pool_size_is_the_one_at_the_cut(alone: Callable[..., Agent]) -> None:
    agent, pool = alone("front"), ThreadPoolExecutor(1)
    agent.pool(pool, "workers")

    def size() -> int | None:
        (found,) = report_when(agent, lambda report: bool(report.pools)).pools
        return found.size

    assert size() == 1
    pool._max_workers = 3
    assert size() == 3
    pool.shutdown()


class OwnThreads(ThreadPoolExecutor):
    """A pool with its own way of starting threads."""

    def _adjust_thread_count(self) -> None:
        super()._adjust_thread_count()


class ThreadPerItem(ThreadPoolExecutor):
    """A pool that starts a thread for each item."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        threading.Thread(target=lambda: done.set_result(fn(*args, **kwargs))).start()
        return done


class Slow(ThreadPerItem):
    """The same, through a class between."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        time.sleep(0.001)
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "size"), [(OwnThreads, None), (ThreadPerItem, None), (Slow, None), (WithContext, 1), (Overflowing, 1)]
)
def test_a_pool_with_its_own_way_of_running_items_has_no_known_size(
    alone: Callable[..., Agent], kind: type[ThreadPoolExecutor], size: int | None
) -> None:
    agent, pool = alone("front"), kind(1)
    agent.pool(pool, "workers")
    (found,) = report_when(agent, lambda report: bool(report.pools)).pools
    assert found.size == size
