"""Waits that only somebody else ends: cancellers, timeouts, hand-overs, leaks that are mended, and pools; never a deadlock."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from queue import SimpleQueue
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from tests.chaos.waits.load import Load, pause

nested, inner = ThreadPoolExecutor(2), ThreadPoolExecutor(2)
engine = create_engine(
    "sqlite://", poolclass=QueuePool, pool_size=2, max_overflow=0, pool_timeout=30, connect_args={"check_same_thread": False}
)
first, second = threading.Lock(), threading.Lock()
mended, handed = threading.Lock(), threading.Lock()
limit = threading.Semaphore(2)
to_release: SimpleQueue[threading.Lock] = SimpleQueue()
to_cancel: SimpleQueue[tuple[float, Any]] = SimpleQueue()
to_close: SimpleQueue[tuple[float, Any]] = SimpleQueue()


def work(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def submit_in_turn(chance: random.Random) -> None:
    """Items of one pool wait for those of another."""
    futures = [nested.submit(lambda: inner.submit(work, chance.uniform(0, 0.2)).result()) for _ in range(3)]
    for future in as_completed(futures):
        future.result()


def wait_for_all(chance: random.Random) -> None:
    wait([inner.submit(work, chance.uniform(0, 0.1)) for _ in range(3)])


def nested_and_cancelled(chance: random.Random) -> None:
    """All threads of a pool wait for items of the same pool, until a watchdog cancels these."""
    pool = ThreadPoolExecutor(2)

    def outer() -> None:
        within: Future[float] = pool.submit(work, 0)
        to_cancel.put((time.monotonic() + chance.uniform(0.7, 1.5), within))
        try:
            within.result()
        except CancelledError:
            return

    wait([pool.submit(outer) for _ in range(2)])
    pool.shutdown()


def watchdog(chance: random.Random) -> None:
    when, future = to_cancel.get()
    time.sleep(max(0.0, when - time.monotonic()))
    future.cancel()


def two_locks(chance: random.Random) -> None:
    """In both orders, but never for long."""
    one, other = (first, second) if chance.random() < 0.5 else (second, first)
    with one:
        pause(chance)
        if other.acquire(timeout=0.8):
            other.release()


def take_and_end() -> None:
    mended.acquire()


def leak(chance: random.Random) -> None:
    """A thread ends with a lock, and a janitor releases it later."""
    thread = threading.Thread(target=take_and_end)
    thread.start()
    thread.join()
    to_release.put(mended)
    with mended:
        pause(chance)


def hand_over(chance: random.Random) -> None:
    handed.acquire()
    pause(chance)
    to_release.put(handed)


def janitor(chance: random.Random) -> None:
    left = to_release.get()
    time.sleep(chance.uniform(0.0, 4.0))
    left.release()


def limited(chance: random.Random) -> None:
    """A done callback gives the place back, whoever took it has ended."""
    limit.acquire()
    inner.submit(work, chance.uniform(0, 2.0)).add_done_callback(lambda _: limit.release())


def two_connections(chance: random.Random) -> None:
    """Both who have a connection wait for a second one, until a timer closes what they have."""
    connection = engine.connect()
    to_close.put((time.monotonic() + chance.uniform(0.7, 1.5), connection))
    engine.connect().close()
    pause(chance)


def closer(chance: random.Random) -> None:
    when, connection = to_close.get()
    time.sleep(max(0.0, when - time.monotonic()))
    connection.close()


def blocks_its_loop(chance: random.Random) -> None:
    """A coroutine blocks its loop on a future that another thread completes, or for a time only."""

    async def main() -> None:
        inner.submit(work, chance.uniform(0, 0.9)).result()
        loop = asyncio.get_running_loop()
        late = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
        try:
            late.result(0.7)
        except TimeoutError:
            late.cancel()
        await loop.run_in_executor(inner, work, 0.1)
        await asyncio.to_thread(work, 0.1)

    asyncio.run(main())


async def cancelled_in_a_cycle(chance: random.Random) -> None:
    """Two tasks await each other, until a timer or a third task cancels one."""
    tasks: list[asyncio.Task[None]] = []
    begun = asyncio.Event()

    async def await_other(number: int) -> None:
        await begun.wait()
        await asyncio.wait([tasks[1 - number]])

    tasks += [asyncio.create_task(await_other(number)) for number in range(2)]
    begun.set()
    seconds = chance.uniform(0.7, 1.5)
    if chance.random() < 0.5:
        asyncio.get_running_loop().call_later(seconds, tasks[0].cancel)
    else:
        await asyncio.sleep(seconds)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def two_locks_with_a_timeout(chance: random.Random) -> None:
    one, other = asyncio.Lock(), asyncio.Lock()

    async def take(first: asyncio.Lock, second: asyncio.Lock) -> None:
        async with first:
            await asyncio.sleep(0)
            async with asyncio.timeout(chance.uniform(0.6, 1.4)), second:
                pass

    await asyncio.gather(take(one, other), take(other, one), return_exceptions=True)


async def set_by_a_timer(chance: random.Random) -> None:
    event, queue = asyncio.Event(), asyncio.Queue[int]()
    loop = asyncio.get_running_loop()
    loop.call_later(chance.uniform(0, 0.9), event.set)
    loop.call_later(chance.uniform(0, 0.9), queue.put_nowait, 1)
    await asyncio.gather(asyncio.create_task(event.wait()), asyncio.create_task(queue.get()))


async def loop_of_tasks(load: Load) -> None:
    async def run(work: Any, number: int) -> None:
        chance = random.Random(number)
        while True:
            await work(chance)
            load.did(work.__name__)

    works = (cancelled_in_a_cycle, two_locks_with_a_timeout, set_by_a_timer) * 2
    await asyncio.gather(*(run(work, number) for number, work in enumerate(works)))


def main() -> None:
    load = Load("helped")
    for work in (submit_in_turn, wait_for_all, nested_and_cancelled, two_locks, hand_over, limited, two_connections):
        load.begin(work.__name__, work, 2)
    for work in (leak, blocks_its_loop, janitor):
        load.begin(work.__name__, work)
    load.begin("watchdog", watchdog, 4)
    load.begin("closer", closer, 4)
    threading.Thread(target=lambda: asyncio.run(loop_of_tasks(load)), daemon=True).start()
    load.show()


main()
