"""A party that waits for what a failed task was to bring is told so; whoever waits for anything else is not."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.look.standing.failed_tasks import failed_before
from stilltrue.runtime.waits.call_stack import stack_of_task
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in
from stilltrue.runtime.waits.wait import CallStack


async def sets(event: asyncio.Event) -> None:
    _fail()
    event.set()


async def puts(items: asyncio.Queue[int]) -> None:
    _fail()
    await items.put(1)


async def completes(future: asyncio.Future[int]) -> None:
    _fail()
    future.set_result(1)


async def reads(event: asyncio.Event) -> None:
    _fail()
    event.is_set()


async def returns(event: asyncio.Event) -> None:
    if event.is_set():
        event.set()


async def waits_and_sets(event: asyncio.Event) -> None:
    await asyncio.sleep(60)
    event.set()


def _fail() -> None:
    raise ValueError("on purpose")


class Service:
    """Has its task and its event as attributes."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()

    async def begin(self) -> None:
        _fail()
        self.ready.set()

    async def run(self) -> None:
        self.tasks.add(asyncio.create_task(self.begin(), name="failing"))
        await self.ready.wait()


async def in_variable() -> None:
    event = asyncio.Event()
    task = asyncio.create_task(sets(event), name="failing")
    await event.wait()
    await task


async def in_list() -> None:
    items: asyncio.Queue[int] = asyncio.Queue()
    tasks = [asyncio.create_task(puts(items), name="failing") for _ in range(2)]
    await items.get()
    await asyncio.gather(*tasks)


async def in_attribute() -> None:
    await Service().run()


async def of_closure() -> None:
    event = asyncio.Event()

    async def begin() -> None:
        _fail()
        event.set()

    task = asyncio.create_task(begin(), name="failing")
    await event.wait()
    await task


async def future() -> None:
    awaited = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(completes(awaited), name="failing")
    await awaited
    await task


async def of_another_event() -> None:
    task = asyncio.create_task(sets(asyncio.Event()), name="failing")
    await asyncio.Event().wait()
    await task


async def _of(body: Callable[[asyncio.Event], Awaitable[None]], *, cancel: bool = False) -> None:
    event = asyncio.Event()
    task: asyncio.Future[None] = asyncio.ensure_future(body(event))
    await asyncio.sleep(0)
    if cancel:
        task.cancel()
    await event.wait()
    await task


async def that_does_not_end_it() -> None:
    await _of(reads)


async def that_has_returned() -> None:
    await _of(returns)


async def that_lives() -> None:
    await _of(waits_and_sets)


async def that_is_cancelled() -> None:
    await _of(waits_and_sets, cancel=True)


def told(body: Callable[[], Any]) -> str:
    """What is said of a task that has run this for a while."""

    async def run() -> str:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        waiting = asyncio.create_task(body())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        said = failed_before(stack_of_task(waiting))
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        return said

    return asyncio.run(run())


@pytest.mark.parametrize("body", [in_variable, in_list, in_attribute, of_closure, future])
def test_a_failed_task_that_was_to_end_the_wait_is_named_with_its_error(body: Callable[[], Any]) -> None:
    said = told(body)
    assert said.startswith("task failing was to end: it failed with ValueError at ")
    assert said.endswith(" in _fail")


@pytest.mark.parametrize("body", [of_another_event, that_does_not_end_it, that_has_returned, that_lives, that_is_cancelled])
def test_no_other_task_is(body: Callable[[], Any]) -> None:
    assert told(body) == ""


def fails_to_put(items: queue.Queue[int]) -> None:
    _fail()
    items.put(1)


def only_asks(items: queue.Queue[int]) -> None:
    if items.empty():
        _fail()


@pytest.mark.parametrize(("work", "is_named"), [(fails_to_put, True), (only_asks, False)])
def test_an_executors_item_that_was_to_bring_what_a_thread_waits_for_is_named(
    work: Callable[[queue.Queue[int]], None], is_named: bool
) -> None:
    items: queue.Queue[int] = queue.Queue()

    def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            futures = [executor.submit(work, items)]
            items.get()
            assert futures

    thread = threading.Thread(target=run)
    thread.start()
    assert thread.ident is not None
    said = ""
    for _ in range(100):
        time.sleep(0.01)
        stack = CallStack(tuple(frames_of_threads()[thread.ident]), thread.ident)
        if awaited_in(thread.ident, stack.frames) is not None and (said := failed_before(stack)):
            break
    items.put(1)
    thread.join(20)
    assert said.startswith("an executor's item was to end: it failed with ValueError at ") if is_named else not said
