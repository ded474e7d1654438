"""The cost of a look when everything is stuck: 10,000 tasks, or 1,000 threads, wait for each other's locks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stilltrue import Agent
from stilltrue.protocol.observation import Observation
from stilltrue.runtime.introspection.cut.observation import Observer

TASKS, THREADS = (10_000, 1_000) if os.environ.get("STILLTRUE_BENCH") else (50, 20)
LOOKS = 7
PATIENCE_SECONDS = 60.0


@contextmanager
def stuck_tasks() -> Iterator[None]:
    """Each task of a loop has a lock and waits for the next one's."""
    begun = threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        locks, end, all_have = [asyncio.Lock() for _ in range(TASKS)], asyncio.Event(), asyncio.Barrier(TASKS)

        async def take(mine: asyncio.Lock, other: asyncio.Lock) -> None:
            async with mine:
                await all_have.wait()
                async with other:
                    pass

        tasks = [asyncio.create_task(take(locks[at], locks[at - 1])) for at in range(TASKS)]
        while not all(lock.locked() for lock in locks) or all_have.n_waiting:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        ends.append((asyncio.get_running_loop(), end))
        begun.set()
        await end.wait()
        for task in tasks:
            task.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    yield
    loop, end = ends[0]
    loop.call_soon_threadsafe(end.set)
    thread.join(PATIENCE_SECONDS)


@contextmanager
def stuck_threads() -> Iterator[None]:
    """Each thread has a lock and waits for the next one's."""
    locks, all_have = [threading.Lock() for _ in range(THREADS)], threading.Barrier(THREADS + 1)
    freed = threading.Event()

    def take(mine: threading.Lock, other: threading.Lock) -> None:
        with suppress(RuntimeError), mine:
            all_have.wait()
            with other:
                freed.wait()

    threads = [threading.Thread(target=take, args=(locks[at], locks[at - 1]), daemon=True) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    all_have.wait(PATIENCE_SECONDS)
    while all_have.n_waiting:
        time.sleep(0)
    yield
    freed.set()
    locks[0].release()  # as nobody else would: one after the other goes on
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


def looked(what: str, all_of: int, agent: Agent) -> Observation:
    """The last of some looks once ``all_of`` are seen to wait; prints the processor time of each."""
    observer, took = Observer(agent.parties), list[float]()
    end = time.monotonic() + PATIENCE_SECONDS
    while len(observer(time.time()).waits) < all_of and time.monotonic() < end:
        time.sleep(0)
    for _ in range(LOOKS):
        before = time.thread_time()
        seen = observer(time.time())
        took.append(time.thread_time() - before)
    times = sorted(took)
    middle, worst = times[LOOKS // 2] * 1e3, times[-1] * 1e3
    print(f"\n{what}: {len(seen.waits)} waits seen, {middle:.0f} ms of processor time a look (worst {worst:.0f} ms)")
    return seen


def test_a_look_at_stuck_tasks() -> None:
    with stuck_tasks():
        assert looked(f"{TASKS} stuck tasks", 1, Agent("bench", instance="bench")).waits


def test_a_look_at_stuck_threads() -> None:
    with stuck_threads():
        assert looked(f"{THREADS} stuck threads", THREADS, Agent("bench", instance="bench")).waits
