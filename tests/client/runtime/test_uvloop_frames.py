"""The uvloop loop that a thread runs is found, however it is run; a thread that only refers to a loop does not run it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import uvloop

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_threads
from tests.client.since_311 import Runner

PATIENCE_SECONDS = 10.0
of_the_module: Any = None


class Runs:
    """A loop, and the ways in which an application may run it."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()

    def by_a_name(self) -> None:
        loop = self.loop
        loop.run_forever()

    def by_an_attribute(self) -> None:
        self.loop.run_forever()

    def by_a_closure(self) -> None:
        loop = self.loop

        def inner() -> None:
            loop.run_forever()

        inner()

    def by_a_global(self) -> None:
        global of_the_module  # noqa: PLW0603 - as many programs do
        of_the_module = self.loop
        of_the_module.run_forever()

    def until_something_is_over(self) -> None:
        async def waits() -> None:
            await asyncio.Event().wait()

        with pytest.raises(RuntimeError):  # the loop is stopped
            self.loop.run_until_complete(
                asyncio.wait_for(
                    waits(),
                    None,
                )
            )

    def that_is_not_named(self) -> None:
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(asyncio.Event().wait())
        asyncio.get_event_loop().run_forever()
        task.cancel()

    def in_a_runner(self) -> None:
        async def waits() -> None:
            await over.wait()

        over = asyncio.Event()
        self.loop.call_later(PATIENCE_SECONDS, over.set)
        with pytest.raises(RuntimeError), Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(waits())


@pytest.fixture
def runs() -> Iterator[Runs]:
    runs = Runs()
    yield runs
    if not runs.loop.is_closed():
        runs.loop.close()


def found(loop: asyncio.AbstractEventLoop) -> list[int]:
    """The threads that run the loop according to their frames."""
    return [ident for ident, frames in frames_of_threads().items() if any(compat.loop_in(frame) is loop for frame in frames)]


def while_it_runs(runs: Runs, run: Callable[[], object], look: Callable[[], None]) -> int | None:
    """Read the frames while a thread runs the loop; return the thread's identity."""
    running = threading.Event()
    runs.loop.call_soon(running.set)
    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(PATIENCE_SECONDS)
    look()
    runs.loop.call_soon_threadsafe(runs.loop.stop)
    thread.join(PATIENCE_SECONDS)
    return thread.ident


WAYS = [name for name in vars(Runs) if not name.startswith("_")]


@pytest.mark.parametrize("way", [*WAYS, "as a thread", "as a part"])
def test_the_thread_that_runs_a_loop_is_found(runs: Runs, way: str) -> None:
    seen: list[int] = []
    run = getattr(runs, way) if way in WAYS else partial(runs.loop.run_forever) if way == "as a part" else runs.loop.run_forever
    ident = while_it_runs(runs, run, lambda: seen.extend(found(runs.loop)))
    assert seen == [ident]
    assert found(runs.loop) == []


def test_an_item_of_an_executor_may_be_the_loop(runs: Runs) -> None:
    seen: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        while_it_runs(runs, lambda: executor.submit(runs.loop.run_forever).result(), lambda: seen.extend(found(runs.loop)))
    assert len(seen) == 1


def test_the_starter_of_a_loops_thread_does_not_run_the_loop(runs: Runs) -> None:
    seen: list[int] = []

    def starts() -> None:
        loop = runs.loop
        loop.call_later(0.001, loop.stop)
        loop.run_forever()  # an earlier run
        loop.call_soon(running.set)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        thread.join()

    running = threading.Event()
    starter = threading.Thread(target=starts)
    starter.start()
    assert running.wait(PATIENCE_SECONDS)
    seen += found(runs.loop)
    runs.loop.call_soon_threadsafe(runs.loop.stop)
    starter.join(PATIENCE_SECONDS)
    assert len(seen) == 1
    assert seen != [starter.ident]


def test_the_main_task_is_the_one_for_which_it_runs(runs: Runs) -> None:
    names: list[str] = []

    async def main() -> None:
        other = asyncio.create_task(asyncio.Event().wait(), name="other")
        await asyncio.to_thread(look)
        other.cancel()

    def look() -> None:
        frames = (frame for each in frames_of_threads().values() for frame in each)
        names.extend(task.get_name() for frame in frames if (task := compat.main_task_in(frame)) is not None)

    task = runs.loop.create_task(main(), name="main")
    runs.loop.run_until_complete(task)
    assert names == ["main"]
