"""A pool's worker is stuck in its own locks, as after a fork while a thread held one: what it was running never comes."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime.waits.pipes import signallers
from stilltrue.runtime.waits.process_pools import executors
from tests.client.look.worlds import report_of
from tests.client.waits.children import end_workers
from tests.client.waits.conftest import PATIENCE_SECONDS, Front

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
]
SPAWN: Any = multiprocessing.get_context("spawn")


def sleep(_: int = 0) -> None:
    time.sleep(600)


def lock_twice(_: int = 0) -> None:
    lock = threading.Lock()
    for _ in range(2):
        lock.acquire()


def answer(number: int = 0) -> int:
    return number


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])


class Workers:
    """A pool, or an executor, of processes."""

    def __init__(self, kind: str, size: int) -> None:
        self.executor = ProcessPoolExecutor(size, SPAWN) if kind == "executor" else None
        self.pool = SPAWN.Pool(size) if kind == "pool" else None
        self.results: list[Any] = []

    def run(self, function: Callable[[int], object]) -> Callable[[], object]:
        """Submit an item; returns what waits for its result."""
        if self.executor is not None:
            return self.executor.submit(function, 0).exception
        assert self.pool is not None
        self.results.append(self.pool.apply_async(function, (0,)))
        wait: Callable[[], object] = self.results[-1].wait
        return wait

    def end(self) -> None:
        """Kill the workers: an executor tells who waits, a pool does not."""
        for result in self.results:
            if not result.ready():
                result._set(0, (True, None))
        end_workers(self.pool if self.executor is None else self.executor)


def waits_for_itself(front: Front, waiter: str) -> bool:
    """Whether a thread waits for the turn of a worker, which it holds itself."""
    report_of(front.agent)
    front.agent._observer.searchers._stuck_children.search()
    report, party = report_of(front.agent), f"front/thread:{waiter}"
    own = {ResourceTarget(resource=one.resource) for one in report.holds if one.party == party}
    return any(len(one.among) == 1 and own.issuperset(one.among) for one in report.waits if one.waiter == party)


def until_it_waits_for_itself(front: Front, waiter: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not waits_for_itself(front, waiter):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def no_other_test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others end workers, and send signals to processes."""
    monkeypatch.setattr(executors._Crashes, "none", True)
    monkeypatch.setattr(signallers, "_started_signal", lambda _: False)


@pytest.mark.parametrize(
    ("size", "items"),
    [(1, (lock_twice,)), (2, (lock_twice,)), (2, (lock_twice, answer)), (1, (lock_twice, answer)), (2, (lock_twice,) * 3)],
    ids=["its only worker", "one of two", "the other has worked", "queued", "all"],
)
@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_what_a_stuck_worker_was_running_never_comes(
    front: Front, kind: str, size: int, items: tuple[Callable[[int], object], ...]
) -> None:
    workers = Workers(kind, size)
    waits = [workers.run(one) for one in items]
    front.start("waiter", waits[0] if size > 1 else waits[-1])
    until_it_waits_for_itself(front, "waiter")
    workers.end()
    front.let_go()


@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_what_another_worker_runs_may_come(front: Front, kind: str) -> None:
    workers = Workers(kind, 2)
    front.start("first", workers.run(lock_twice))
    until_it_waits_for_itself(front, "first")
    front.start("waiter", workers.run(sleep))
    for _ in range(20):
        assert not waits_for_itself(front, "waiter")
        time.sleep(0.05)
    workers.end()
    front.let_go()
