"""Waits of threads that no event reports: for the result of another thread's or task's work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from tests.client.look.worlds import LoopWorld, Stuck, look_at, of, report_of, report_when, serving


@contextmanager
def calling(alone: Callable[..., Agent], stuck: Stuck) -> Iterator[tuple[Agent, Any]]:
    """A front, and a stub for a stuck method of it."""
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        yield front, front.channel(channel).unary_unary("/s/Get")
        stuck.go.set()


def seen(report: Report, waiter: str) -> list[LocalWait]:
    """The observed waits of this party, without its waits for calls."""
    return [wait for wait in report.waits if wait.waiter == waiter and isinstance(wait.among[0], PartyTarget)]


def test_result_of_an_executor_item_waits_for_the_thread_that_runs_it(alone: Callable[..., Agent], stuck: Stuck) -> None:
    executor = ThreadPoolExecutor(1, "worker")
    with calling(alone, stuck) as (front, get):
        thread = threading.Thread(target=lambda: executor.submit(get, b"").result(), name="caller")
        thread.start()
        stuck.wait_for_callers()
        report = report_when(front, lambda report: bool(seen(report, "front/thread:caller")))
        (wait,) = seen(report, "front/thread:caller")
        assert wait.among == (
            PartyTarget(party=next(w.waiter for w in report.waits if w.waiter.startswith("front/thread:worker"))),
        )
        assert wait.deadline is None
        (again,) = seen(report_of(front), "front/thread:caller")
        assert (again.number, again.since) == (wait.number, wait.since)
        look = of(look_at(front, report), "front/thread:caller")
        assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
        assert __file__ in look.stack[0]
        stuck.go.set()
        thread.join()
        assert not of(look_at(front, report), "front/thread:caller").unchanged
    executor.shutdown()


def test_a_result_with_a_timeout_is_not_a_wait(alone: Callable[..., Agent], stuck: Stuck) -> None:
    executor = ThreadPoolExecutor(1)
    with calling(alone, stuck) as (front, get):
        future = executor.submit(get, b"")
        thread = threading.Thread(target=lambda: future.result(60), name="caller")
        thread.start()
        stuck.wait_for_callers()
        assert seen(report_of(front), "front/thread:caller") == []
        stuck.go.set()
        thread.join()
    executor.shutdown()


def test_a_future_with_no_known_completer_is_not_a_wait(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    future: Future[None] = Future()
    begun = threading.Event()

    def asks() -> None:
        begun.set()
        future.result()

    thread = threading.Thread(target=asks, name="caller")
    thread.start()
    assert begun.wait(10)
    assert report_of(front).waits == ()
    future.set_result(None)
    thread.join()


async def test_result_of_run_coroutine_threadsafe_waits_for_the_task(alone: Callable[..., Agent]) -> None:
    world = LoopWorld(alone("front"), alone("back"))
    await world.start()
    loop = asyncio.get_running_loop()

    async def calls() -> bytes:
        return bytes(await world.stuck(b""))

    thread = threading.Thread(target=lambda: asyncio.run_coroutine_threadsafe(calls(), loop).result(), name="caller")
    thread.start()
    await world.held.acquire()
    report = await asyncio.to_thread(report_when, world.front, lambda report: bool(seen(report, "front/thread:caller")))
    (wait,) = seen(report, "front/thread:caller")
    (task,) = [other.waiter for other in report.waits if other.waiter.startswith("front/task:")]
    assert wait.among == (PartyTarget(party=task),)
    world.go.set()
    await asyncio.to_thread(thread.join)
    await world.stop()


@pytest.fixture
async def start() -> AsyncIterator[Callable[[LoopWorld], Awaitable[None]]]:
    """Starts worlds and stops them after the test: a test that names a world's end would be a way out of its waits."""
    worlds: list[LoopWorld] = []

    async def started(world: LoopWorld) -> None:
        worlds.append(world)
        await world.start()

    yield started
    for world in worlds:
        await world.stop()


@pytest.fixture
def called(alone: Callable[..., Agent], stuck: Stuck) -> Iterator[tuple[Agent, Any]]:
    """As above, but its end does not belong to the task: leaving its block would be a way out."""
    with calling(alone, stuck) as found:
        yield found


def test_a_wait_for_all_of_several_items_is_for_those_that_are_left(alone: Callable[..., Agent]) -> None:
    """It is one wait all the time. An unchanged wait is reported as at the cut before, a changed one is not."""
    agent = alone("front")
    executor, ends = ThreadPoolExecutor(2, "worker"), (threading.Event(), threading.Event())
    items = [executor.submit(end.wait) for end in ends]
    thread = threading.Thread(target=wait, args=(items,), name="waiter")
    thread.start()

    def waits_for(count: int) -> LocalWait:
        def is_seen(report: Report) -> bool:
            return any(one.waiter.endswith("waiter") and len(one.among) == count for one in report.waits)

        (found,) = [one for one in report_when(agent, is_seen).waits if one.waiter.endswith("waiter")]
        return found

    first, again = waits_for(2), waits_for(2)
    assert again is first
    ends[0].set()
    left = waits_for(1)
    assert (left.number, left.since, left.needs) == (first.number, first.since, 1)
    assert set(left.among) < set(first.among)
    assert left.what != first.what
    ends[1].set()
    thread.join()
    executor.shutdown()


async def test_a_handler_that_awaits_a_thread_waits_for_it(
    alone: Callable[..., Agent],
    stuck: Stuck,
    start: Callable[[LoopWorld], Awaitable[None]],
    called: tuple[Agent, Any],
) -> None:
    front, get = called
    world = LoopWorld(front, alone("further"))
    await start(world)

    async def body(world: LoopWorld) -> None:
        await asyncio.to_thread(get, b"")

    world.body = body
    call = world.outside.unary_unary("/t.T/Do")(b"")
    await asyncio.to_thread(stuck.wait_for_callers)
    report = report_of(front)
    (handler,) = [served.party for served in report.served]
    (wait,) = seen(report, handler)
    (target,) = wait.among
    assert isinstance(target, PartyTarget)
    assert any(other.waiter == target.party for other in report.waits)
    look = await asyncio.to_thread(look_at, front, report)
    assert all(one.unchanged and not one.ways_out and not one.doubt for one in look.parties)
    stuck.go.set()
    assert await call == b"done"


JOINS: dict[str, Callable[[ThreadPoolExecutor, Any], object]] = {
    "wait for all": lambda executor, get: wait([executor.submit(get, b""), executor.submit(get, b"")]),
    "wait for the first": lambda executor, get: wait(
        [executor.submit(get, b""), executor.submit(get, b"")], return_when=FIRST_COMPLETED
    ),
    "as_completed": lambda executor, get: next(as_completed([executor.submit(get, b""), executor.submit(get, b"")])),
}


@pytest.mark.parametrize("how", JOINS)
def test_a_wait_for_several_items_waits_for_their_threads(alone: Callable[..., Agent], stuck: Stuck, how: str) -> None:
    with calling(alone, stuck) as (front, get), ThreadPoolExecutor(2, "worker") as executor:
        thread = threading.Thread(target=JOINS[how], args=(executor, get), name="caller")
        thread.start()
        stuck.wait_for_callers(2)
        report = report_when(front, lambda report: bool(seen(report, "front/thread:caller")))
        (found,) = seen(report, "front/thread:caller")
        workers = [one.waiter for one in report.waits if one.waiter.startswith("front/thread:worker")]
        assert {target.party for target in found.among if isinstance(target, PartyTarget)} == set(workers)
        assert found.needs == (2 if how == "wait for all" else 1)
        look = of(look_at(front, report), "front/thread:caller")
        assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
        stuck.go.set()
        thread.join()


@pytest.mark.parametrize("timed", [False, True])
def test_joining_a_thread_waits_for_its_end(alone: Callable[..., Agent], stuck: Stuck, timed: bool) -> None:
    with calling(alone, stuck) as (front, get):
        helper = threading.Thread(target=get, args=(b"",), name="helper")
        helper.start()
        thread = threading.Thread(target=helper.join, args=(60,) if timed else (), name="caller")
        thread.start()
        stuck.wait_for_callers()
        if timed:
            report = report_when(front, lambda report: bool(report.waits))
            assert seen(report, "front/thread:caller") == []
        else:
            report = report_when(front, lambda report: bool(seen(report, "front/thread:caller")))
            (found,) = seen(report, "front/thread:caller")
            assert found.among == (PartyTarget(party=PartyName("front/thread:helper")),)
            assert of(look_at(front, report), "front/thread:caller").unchanged
        stuck.go.set()
        thread.join()
        helper.join()
