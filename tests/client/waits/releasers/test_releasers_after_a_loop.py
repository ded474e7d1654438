"""A thread that releases a lock after running an event loop does so once the loop's task has ended, if it ever ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from tests.client.waits.conftest import Front
from tests.client.waits.releasers.releasing import hold, looked_at

FAR_SECONDS = 600.0
TICK_SECONDS = 0.01
Body = Callable[["World"], Awaitable[object]]
ENDS: list[Body] = []
NEVER_ENDS: list[Body] = []


class World:
    """State shared by the loop's task, its timers and other threads."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.stop = False
        self.timers: list[threading.Timer] = []

    def later(self, act: Callable[[], object]) -> None:
        """Act from another thread in the far future."""
        timer = threading.Timer(FAR_SECONDS, act)
        timer.daemon = True
        timer.start()
        self.timers.append(timer)

    def set_stop(self) -> None:
        self.stop = True


def ends(body: Body) -> Body:
    ENDS.append(body)
    return body


def never_ends(body: Body) -> Body:
    NEVER_ENDS.append(body)
    return body


@ends
async def after_a_number_of_steps(world: World) -> None:
    for _ in range(60_000):
        await asyncio.sleep(TICK_SECONDS)
    world.set_stop()


@ends
async def at_a_time(world: World) -> None:
    del world
    end = time.monotonic() + FAR_SECONDS
    while time.monotonic() < end:
        await asyncio.sleep(TICK_SECONDS)


@ends
async def when_a_timer_of_a_thread_sets_an_event(world: World) -> None:
    world.later(world.over.set)
    while not world.over.is_set():
        await asyncio.sleep(TICK_SECONDS)


@ends
async def when_a_timer_of_a_thread_sets_a_flag(world: World) -> None:
    world.later(world.set_stop)
    while not world.stop:
        await asyncio.sleep(TICK_SECONDS)


@ends
async def when_a_timer_of_the_loop_sets_a_flag(world: World) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, world.set_stop)
    while not world.stop:
        await asyncio.sleep(TICK_SECONDS)


@ends
async def when_a_timer_of_the_loop_sets_an_event(world: World) -> None:
    del world
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(FAR_SECONDS, event.set)
    await event.wait()


@ends
async def when_a_thread_feeds_a_queue(world: World) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    world.later(lambda: loop.call_soon_threadsafe(queue.put_nowait, 1))
    await queue.get()


@ends
async def when_a_task_that_it_gathers_ends(world: World) -> None:
    async def works() -> None:
        world.later(world.set_stop)
        while not world.stop:
            await asyncio.sleep(TICK_SECONDS)

    await asyncio.gather(works())


@ends
async def when_another_task_sets_its_flag(world: World) -> None:
    async def sets() -> None:
        for _ in range(60_000):
            await asyncio.sleep(TICK_SECONDS)
        world.stop = True

    setting = asyncio.create_task(sets())
    while not world.stop:
        await asyncio.sleep(TICK_SECONDS)
    await setting


@ends
async def when_what_it_iterates_ends(world: World) -> None:
    async def numbers() -> AsyncIterator[int]:
        world.later(world.over.set)
        while not world.over.is_set():
            yield 1
            await asyncio.sleep(TICK_SECONDS)

    async for _ in numbers():
        pass


@ends
async def when_a_function_says_so(world: World) -> None:
    world.later(world.set_stop)

    def is_over() -> bool:
        return world.stop

    while True:
        if is_over():
            return
        await asyncio.sleep(TICK_SECONDS)


@never_ends
async def when_a_flag_changes_that_nobody_sets(world: World) -> None:
    while not world.stop:
        await asyncio.sleep(TICK_SECONDS)


@never_ends
async def when_an_event_is_set_that_nobody_has(world: World) -> None:
    del world
    event = asyncio.Event()
    while not event.is_set():
        await asyncio.sleep(TICK_SECONDS)


@pytest.fixture
def loops() -> Iterator[list[asyncio.AbstractEventLoop]]:
    """The event loops that the test runs; their tasks are cancelled at its end."""
    loops: list[asyncio.AbstractEventLoop] = []
    yield loops
    for loop in loops:
        for task in asyncio.all_tasks(loop):
            with suppress(RuntimeError):  # cancelling the first may end all of them
                loop.call_soon_threadsafe(task.cancel)


@pytest.mark.parametrize("body", [*ENDS, *NEVER_ENDS], ids=lambda one: one.__name__)
def test_code_after_a_loop_may_release_the_lock(front: Front, loops: list[asyncio.AbstractEventLoop], body: Body) -> None:
    lock, world = threading.Lock(), World()

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await body(world)

    def act() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(main())
        with suppress(RuntimeError):
            lock.release()

    hold(front, lock)
    threading.Thread(target=act, name="beside", daemon=True).start()
    while not loops:
        pass
    found = looked_at(front, lock, by="thread beside")
    front.let_go()
    for timer in world.timers:
        timer.cancel()
    assert bool(found) is (body in ENDS)
