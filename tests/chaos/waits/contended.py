"""Locks and semaphores that each function gives back itself, always under contention, with slow holders of every form."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from tests.chaos.waits.load import Load, long_or_short, pause

lock, reentrant, places = threading.Lock(), threading.RLock(), threading.Semaphore(2)
bounded, condition = threading.BoundedSemaphore(2), threading.Condition()
locks = {number: threading.Lock() for number in range(2)}
by_name = threading.Lock()
stacked = threading.Lock()


def bare(chance: random.Random) -> None:
    lock.acquire()
    pause(chance)
    lock.release()


def in_a_block(chance: random.Random) -> None:
    with lock:
        pause(chance)


def in_a_finally(chance: random.Random) -> None:
    lock.acquire()
    try:
        pause(chance)
    finally:
        lock.release()


def deeper(chance: random.Random) -> None:
    def inner(run: Callable[[random.Random], None]) -> None:
        run(chance)

    lock.acquire()
    inner(pause)
    lock.release()


def again(chance: random.Random) -> None:
    reentrant.acquire()
    with reentrant:
        pause(chance)
    reentrant.release()


def by_short_threads(chance: random.Random) -> None:
    """A thread ends, and the next one has its identity."""
    thread = threading.Thread(target=again, args=(chance,))
    thread.start()
    thread.join()


def place(chance: random.Random) -> None:
    places.acquire()
    pause(chance)
    places.release()


def bounded_place(chance: random.Random) -> None:
    with bounded:
        pause(chance)


def lock_of(number: int) -> threading.Lock:
    return locks[number]


def named(chance: random.Random) -> None:
    with lock_of(chance.randrange(2)):
        pause(chance)


def item(chance: random.Random) -> None:
    with locks[0], locks[1]:
        pause(chance)


@contextmanager
def locked() -> Iterator[None]:
    with by_name:
        yield


def by_generator(chance: random.Random) -> None:
    with locked():
        pause(chance)


def by_stack(chance: random.Random) -> None:
    with ExitStack() as stack:
        stack.enter_context(stacked)
        pause(chance)


def stacked_block(chance: random.Random) -> None:
    with stacked:
        pause(chance)


def wait_for_a_word(chance: random.Random) -> None:
    with condition:
        condition.wait(chance.uniform(0, 1))
        pause(chance)


def say_a_word(chance: random.Random) -> None:
    with condition:
        condition.notify_all()
        pause(chance)


class Tasks:
    """The same on an event loop."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.lock = asyncio.Lock()
        self.places = asyncio.Semaphore(2)

    async def bare(self, chance: random.Random) -> None:
        await self.lock.acquire()
        await rest(chance)
        self.lock.release()

    async def block(self, chance: random.Random) -> None:
        async with self.lock:
            await rest(chance)

    async def place(self, chance: random.Random) -> None:
        await self.places.acquire()
        try:
            await rest(chance)
        finally:
            self.places.release()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self.lock:
            yield

    async def by_generator(self, chance: random.Random) -> None:
        async with self.locked():
            await rest(chance)

    async def main(self) -> None:
        works = (self.bare, self.block, self.place, self.place, self.place, self.by_generator)
        await asyncio.gather(*(self._run(work, number) for number, work in enumerate(works)))

    async def _run(self, work: Callable[..., object], number: int) -> None:
        chance = random.Random(number)
        while True:
            await asyncio.create_task(work(chance))  # type: ignore[arg-type]
            self._load.did(f"task_{work.__name__}")


async def rest(chance: random.Random) -> None:
    await asyncio.sleep(long_or_short(chance))


def main() -> None:
    load = Load("contended")
    for work in (bare, in_a_block, in_a_finally, deeper, again, by_short_threads, named, item, by_generator):
        load.begin(work.__name__, work, 2)
    for work in (place, bounded_place):
        load.begin(work.__name__, work, 4)
    for work in (by_stack, stacked_block, wait_for_a_word, say_a_word):
        load.begin(work.__name__, work, 1)
    threading.Thread(target=lambda: asyncio.run(Tasks(load).main()), daemon=True).start()
    load.show()


main()
