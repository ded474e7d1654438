"""Tasks that nobody awaits wait for each other if each, in no loop, is about to do the very thing that the next waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look
from stilltrue.runtime.waits.call_stack import stack_of_task
from stilltrue.runtime.waits.reachability.loops.crossed_tasks import crossed
from tests.client.look.worlds import look_at, report_of
from tests.client.waits.test_task_waits import Main, running, waits_of

PATIENCE_SECONDS = 20.0
_Coroutine = Coroutine[Any, Any, Any]
_KEPT: set[asyncio.Task[Any]] = set()


class Part:
    """A part of a program that becomes ready once another is."""

    def __init__(self) -> None:
        self.ready, self.inbox, self.condition = asyncio.Event(), asyncio.Queue[int](), asyncio.Condition()
        self.answer = asyncio.get_running_loop().create_future()
        self.is_up = False

    def mark(self) -> None:
        self.ready.set()

    async def wait(self) -> None:
        await self.ready.wait()

    async def sets(self, other: Part) -> None:
        await other.ready.wait()
        self.ready.set()

    async def marks(self, other: Part) -> None:
        await other.wait()
        self.mark()

    async def puts(self, other: Part) -> None:
        item = await other.inbox.get()
        await self.inbox.put(item)

    async def completes(self, other: Part) -> None:
        self.answer.set_result(await other.answer)

    async def notifies(self, other: Part) -> None:
        async with other.condition:
            while not other.is_up:
                await other.condition.wait()
        async with self.condition:
            self.is_up = True
            self.condition.notify_all()

    async def puts_for_ever(self, other: Part) -> None:
        while True:
            await self.inbox.put(await other.inbox.get())

    async def steps_for_ever(self, other: Part) -> None:
        while True:
            await self.sets(other)
            other.ready.clear()

    async def at_work(self, other: Part) -> None:
        while True:
            item = await self.inbox.get()
            await other.ready.wait()
            self.ready.set()
            print(item)

    async def passes_on(self, other: Part) -> None:
        await other.ready.wait()
        other.ready.set()

    async def sets_nothing(self, other: Part) -> None:
        await other.ready.wait()
        print(self.ready)


def pair(what: str) -> list[_Coroutine]:
    """Two that wait for each other."""
    one, two = Part(), Part()
    one.inbox.put_nowait(1) if what == "at_work" else None
    two.inbox.put_nowait(1) if what == "at_work" else None
    return [getattr(one, what)(two), getattr(two, what)(one)]


def three() -> list[_Coroutine]:
    parts = [Part(), Part(), Part()]
    return [part.sets(parts[index - 1]) for index, part in enumerate(parts)]


def a_queue_and_an_event() -> list[_Coroutine]:
    one, two = Part(), Part()

    async def reads() -> None:
        await one.inbox.get()
        two.ready.set()

    async def writes() -> None:
        await two.ready.wait()
        one.inbox.put_nowait(1)

    return [reads(), writes()]


def watchers_of_one_stop() -> list[_Coroutine]:
    stop = Part()
    return [stop.passes_on(stop), stop.passes_on(stop)]


def a_chain() -> list[_Coroutine]:
    one, two = Part(), Part()
    return [two.sets(one), Part().sets(two)]


def one_of_them_in_a_loop() -> list[_Coroutine]:
    one, two = Part(), Part()
    return [one.sets(two), two.steps_for_ever(one)]


async def _crossed(make: Callable[[], list[_Coroutine]]) -> int:
    tasks = [asyncio.create_task(one) for one in make()]
    for _ in range(3):
        await asyncio.sleep(0)
    found = len(crossed(map(stack_of_task, tasks)))
    for one in tasks:
        one.cancel()
    await asyncio.wait(tasks)
    return found


@pytest.mark.parametrize("what", ["sets", "marks", "puts", "completes", "notifies", "at_work"])
def test_two_tasks_that_are_about_to_end_each_others_wait_are_crossed(what: str) -> None:
    assert asyncio.run(_crossed(lambda: pair(what))) == 2


@pytest.mark.parametrize(("make", "count"), [(three, 3), (a_queue_and_an_event, 2)])
def test_so_are_more_tasks_in_a_circle(make: Callable[[], list[_Coroutine]], count: int) -> None:
    assert asyncio.run(_crossed(make)) == count


@pytest.mark.parametrize("what", ["puts_for_ever", "steps_for_ever", "passes_on", "sets_nothing"])
def test_idle_tasks_are_not_crossed(what: str) -> None:
    assert asyncio.run(_crossed(lambda: pair(what))) == 0


@pytest.mark.parametrize("make", [watchers_of_one_stop, a_chain, one_of_them_in_a_loop])
def test_nor_are_tasks_that_stand_in_no_circle_of_such_tasks(make: Callable[[], list[_Coroutine]]) -> None:
    assert asyncio.run(_crossed(make)) == 0


# -- reports of the agent ----------------------------------------------------------------------------------------------


def _begin(make: Callable[[], list[_Coroutine]]) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(one, name=name) for name, one in zip(("left", "right"), make(), strict=True)]


def _in_background(make: Callable[[], list[_Coroutine]]) -> Main:
    """A program that runs these as tasks beside its main task, which never uses them again."""

    async def main() -> None:
        _KEPT.clear()
        for task in _begin(make):
            _KEPT.add(task)
        while True:
            await asyncio.sleep(0.2)

    return main


def _watched(make: Callable[[], list[_Coroutine]]) -> Main:
    """The same, but the main task may cancel one of them later."""

    async def main() -> None:
        _KEPT.clear()
        for task in _begin(make):
            _KEPT.add(task)
        while True:
            await asyncio.sleep(0.2)
            if time.monotonic() < 0:
                task.cancel()

    return main


def _held_by_tasks(look: Look) -> list[str]:
    """The ways out by other tasks, which hold one of these; the end of the test's own main task is one, too."""
    known = {one.party for one in look.parties}
    every = (way for one in look.parties for way in one.ways_out if way.party not in known)
    return [way.text for way in every if "which holds it" in way.text]


@pytest.fixture
def reports(alone: Callable[..., Agent]) -> Callable[[float], Iterator[tuple[Agent, Report]]]:
    agent = alone("here")

    def every(seconds: float) -> Iterator[tuple[Agent, Report]]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            agent._observer.searchers.search(time.time())
            yield agent, report_of(agent)

    return every


Reports = Callable[[float], Iterator[tuple[Agent, Report]]]


@pytest.mark.parametrize("what", ["sets", "puts", "completes"])
def test_crossed_tasks_that_nobody_awaits_wait_for_each_other(reports: Reports, what: str) -> None:
    with running(_in_background(lambda: pair(what))):
        agent, report = next(one for one in reports(PATIENCE_SECONDS) if len(waits_of(one[1])) == 2)
        assert waits_of(report) == {"left": {"right"}, "right": {"left"}}
        look = look_at(agent, report)
        assert all(one.unchanged and not one.doubt for one in look.parties)
        assert not _held_by_tasks(look)


def test_the_last_task_that_a_loop_has_left_in_a_variable_is_no_way_out_unless_it_is_read(reports: Reports) -> None:
    with running(_watched(lambda: pair("sets"))):
        agent, report = next(one for one in reports(PATIENCE_SECONDS) if len(waits_of(one[1])) == 2)
        assert _held_by_tasks(look_at(agent, report))


@pytest.mark.parametrize("what", ["puts_for_ever", "passes_on", "sets_nothing"])
def test_idle_tasks_that_nobody_awaits_wait_for_nothing(reports: Reports, what: str) -> None:
    with running(_in_background(lambda: pair(what))):
        assert not any(waits_of(report) for _, report in reports(2.0))
