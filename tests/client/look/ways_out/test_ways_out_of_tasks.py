"""Ways out of a task's wait that only a second look finds, family by family, each with a near miss that has none."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from stilltrue.model import PartyName
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.ways_out.findings import WAYS_OUT_MAX, Found
from tests.client.look.worlds import (
    LoopWorld,
    free_of_ways_out,
    handler_of,
    holders,
    report_of,
    seconds_to,
    settle,
    task_of,
)

FAR_SECONDS = 60.0
in_task_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no task groups before Python 3.11")


async def test_a_sleeping_task_with_a_reference_to_another_may_cancel_it(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await world.go.wait()
        await task

    look = await world.look(body)
    (task,) = look.parties  # the handler itself is running
    assert [holder.split("#")[0] for holder in holders(task)] == ["Do"]


class _Job:
    """What a worker does at each turn."""

    def tick(self) -> None:
        """Count."""


class _Watchdog(_Job):
    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def tick(self) -> None:
        self.act()


class _Killer(_Job):
    def __init__(self, task: Any) -> None:
        self.task = task

    def tick(self) -> None:
        self.task.cancel()


class _Worker:
    def __init__(self, job: _Job) -> None:
        self.job = job

    async def run(self, go: asyncio.Event) -> None:
        await go.wait()
        self.job.tick()


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (_Killer, True),
        (lambda task: _Watchdog(lambda: print(task.cancel())), True),
        (lambda task: _Watchdog(lambda: print(task.done())), False),
    ],
    ids=["another class", "another function", "none"],
)
async def test_each_of_several_workers_with_the_same_code_is_looked_at(
    world: LoopWorld, at: int, job: Callable[[Any], _Job], expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        jobs: list[_Job] = [_Watchdog(lambda: print(world)) for _ in range(5)]
        jobs.insert(at, job(task))
        workers = [asyncio.ensure_future(_Worker(one).run(asyncio.Event())) for one in jobs]
        try:
            await task
        finally:
            for one in workers:
                one.cancel()

    look = await world.look(body)
    assert bool(holders(task_of(look))) is expected


async def test_a_task_that_only_awaits_another_is_not_a_way_out(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await task

    look = await world.look(body)
    assert len(look.parties) == 2
    assert free_of_ways_out(look)


async def test_a_watchdog_is_a_way_out_of_the_tasks_it_watches(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))

        async def watch() -> None:
            await world.go.wait()
            task.cancelled()

        dog = asyncio.create_task(watch())
        await task
        await dog

    look = await world.look(body)
    assert "-" in holders(task_of(look))
    assert not handler_of(look).ways_out


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no barriers before Python 3.11")
@pytest.mark.parametrize("comes", [True, False])
async def test_a_watchdog_at_a_barrier_is_a_way_out_if_another_task_comes_there(world: LoopWorld, comes: bool) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        barrier = asyncio.Barrier(2)

        async def watch() -> None:
            await barrier.wait()
            task.cancel()

        async def come() -> None:
            await asyncio.sleep(FAR_SECONDS)
            if comes:
                await barrier.wait()

        async def stay_away() -> None:
            await asyncio.sleep(FAR_SECONDS)

        others = [asyncio.create_task(one()) for one in (watch, come if comes else stay_away)]
        try:
            await task
        finally:
            for one in others:
                one.cancel()

    look = await world.look(body)
    assert ("-" in holders(task_of(look))) is comes


async def test_cancelling_a_gather_cancels_its_children(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        gathering = asyncio.gather(world.stuck(b"1"), world.stuck(b"2"), return_exceptions=True)

        async def watch() -> None:
            await world.go.wait()
            gathering.done()

        dog = asyncio.create_task(watch())
        await gathering
        await dog

    look = await world.look(body, stuck=2)
    assert all("-" in holders(one) for one in look.parties)


@pytest.mark.parametrize("how", ["await", "gather", "wait_for", "deeper"])
async def test_a_watchdog_of_a_job_is_a_way_out_of_the_jobs_waits(world: LoopWorld, how: str) -> None:
    async def calls() -> None:
        await world.stuck(b"")

    async def job() -> None:
        match how:
            case "await":
                await asyncio.create_task(calls())
            case "gather":
                await asyncio.gather(calls(), return_exceptions=True)
            case "wait_for":
                await asyncio.wait_for(asyncio.create_task(calls()), None)
            case _:
                await asyncio.create_task(deeper())

    async def deeper() -> None:
        await asyncio.create_task(calls())

    async def watch(watched: Any) -> None:
        await world.go.wait()
        watched.cancelled()

    async def body(world: LoopWorld) -> None:
        running = asyncio.create_task(job())
        dog = asyncio.create_task(watch(running))
        await running
        await dog

    look = await world.look(body)
    below = [seen for seen in look.parties if seen is not handler_of(look)]
    assert len(below) == (3 if how == "deeper" else 2)
    assert all("-" in holders(seen) for seen in below)


async def test_a_timer_that_cancels_a_job_is_a_deadline_of_the_jobs_waits(world: LoopWorld) -> None:
    async def job() -> None:
        await asyncio.gather(world.stuck(b""), return_exceptions=True)

    async def body(world: LoopWorld) -> None:
        running = asyncio.create_task(job())
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, running.cancel)
        await running
        timer.cancel()

    look = await world.look(body)
    assert len(look.parties) == 3
    for seen in look.parties:
        if seen is not handler_of(look):
            assert 0 < seconds_to(seen) <= FAR_SECONDS


@in_task_groups
async def test_a_sibling_that_joins_the_task_group_after_the_cut_is_a_way_out(world: LoopWorld) -> None:
    groups: list[asyncio.TaskGroup] = []

    async def body(world: LoopWorld, show: Any = id) -> None:
        async def calls() -> None:
            await asyncio.create_task(asyncio.wait_for(world.stuck(b""), None))

        async with asyncio.TaskGroup() as group:
            show(group)
            group.create_task(calls())

    async def shown(world: LoopWorld) -> None:
        await body(world, groups.append)

    async def joins() -> None:
        await world.go.wait()

    async def join() -> None:
        groups[-1].create_task(joins())

    assert free_of_ways_out(await world.look(body))
    late = await world.look(shown, meanwhile=join)
    below = [seen for seen in late.parties if seen is not handler_of(late)]
    assert all("-" in holders(seen) for seen in below)
    assert any("may fail in the same task group" in way.text for seen in below for way in seen.ways_out)


@in_task_groups
async def test_a_task_of_the_group_in_whose_block_a_handler_waits_is_a_way_out(world: LoopWorld) -> None:
    async def guards() -> None:
        await asyncio.sleep(FAR_SECONDS)
        raise TimeoutError

    async def after(world: LoopWorld) -> None:
        async with asyncio.TaskGroup() as group:
            guard = group.create_task(guards())
            await settle()
            guard.cancel()
        await world.stuck(b"")

    async def within(world: LoopWorld) -> None:
        async with asyncio.TaskGroup() as group:
            guard = group.create_task(guards())
            await world.stuck(b"")
            guard.cancel()

    assert free_of_ways_out(await world.look(after))
    assert any("in the same task group" in one.text for one in handler_of(await world.look(within)).ways_out)


async def starts_one(world: LoopWorld, group: Any) -> None:
    await world.go.wait()
    group.create_task(asyncio.sleep(0))


async def starts_one_elsewhere(world: LoopWorld, group: Any) -> None:
    del group
    await world.go.wait()
    await asyncio.create_task(asyncio.sleep(0))


async def only_counts(world: LoopWorld, group: Any) -> None:
    await world.go.wait()
    len(group._tasks)


@in_task_groups
@pytest.mark.parametrize(("beside", "expected"), [(starts_one, True), (starts_one_elsewhere, False), (only_counts, False)])
async def test_a_task_beside_a_group_that_may_start_one_in_it_is_a_way_out(
    world: LoopWorld, beside: Any, *, expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        async def calls() -> None:
            await asyncio.create_task(asyncio.wait_for(world.stuck(b""), None))

        async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as inner:
            inner.create_task(calls())
            BESIDE.append(asyncio.create_task(beside(world, group)))

    look = await world.look(body)
    BESIDE.clear()
    inside = [seen for seen in look.parties if "." in seen.party]
    assert len(inside) == 2
    assert all(("-" in holders(seen)) is expected for seen in inside), [seen.ways_out for seen in inside]


@in_task_groups
@pytest.mark.parametrize("starting", [True, False])
async def test_a_timer_that_starts_a_task_in_a_group_is_a_way_out(world: LoopWorld, *, starting: bool) -> None:
    async def body(world: LoopWorld) -> None:
        async with asyncio.TaskGroup() as group:
            called: Any = (group.create_task, None) if starting else (id, group)
            timer = asyncio.get_running_loop().call_later(FAR_SECONDS, *called)
            group.create_task(asyncio.wait_for(world.stuck(b""), None))
        timer.cancel()

    look = await world.look(body)
    assert free_of_ways_out(look) is not starting, [seen.ways_out for seen in look.parties]


async def test_a_task_that_has_begun_to_await_since_the_cut_is_doubt(world: LoopWorld) -> None:
    now_await = asyncio.Event()

    async def body(world: LoopWorld) -> None:
        running = asyncio.create_task(asyncio.wait_for(world.stuck(b""), None))
        await now_await.wait()
        await running

    async def await_it() -> None:
        now_await.set()
        await settle()
        report_of(world.front)  # a newer cut has seen it wait

    (seen,) = (await world.look(body, meanwhile=await_it)).parties
    assert seen.doubt.endswith("has begun to await it since the cut")


async def sets_later(parks: asyncio.Event, parked: Any) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, parks.set)


async def is_cancelled_later(parks: asyncio.Event, parked: Any) -> None:
    async def cancels() -> None:
        await asyncio.sleep(FAR_SECONDS)
        parked.cancel()

    BESIDE.append(asyncio.create_task(cancels()))


async def has_a_sibling_that_may_fail(parks: asyncio.Event, parked: Any) -> None:
    BESIDE[-1].create_task(asyncio.sleep(FAR_SECONDS))


async def is_left_alone(parks: asyncio.Event, parked: Any) -> None:
    pass


BESIDE: list[Any] = []
"""The code that runs beside a parked task."""


@in_task_groups
@pytest.mark.parametrize(
    ("beside", "expected"),
    [(is_left_alone, False), (sets_later, True), (is_cancelled_later, True), (has_a_sibling_that_may_fail, True)],
)
async def test_a_parked_task_with_a_reference_is_a_way_out_only_if_it_may_be_woken(
    world: LoopWorld, beside: Any, expected: bool
) -> None:
    started: list[Any] = []

    async def parks(over: asyncio.Event) -> None:
        tasks = [started.pop()]
        try:
            await over.wait()
        finally:
            for task in tasks:
                task.cancel()

    async def group() -> None:
        async with asyncio.TaskGroup() as inside:
            BESIDE.append(inside)
            over = asyncio.Event()
            await beside(over, inside.create_task(parks(over)))

    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        started.append(task)
        parking = asyncio.create_task(group())
        await settle()
        await asyncio.wait([task])
        parking.cancel()

    look = await world.look(body)
    BESIDE.clear()
    assert ("-" in holders(task_of(look))) is expected, task_of(look).ways_out


async def test_a_party_with_the_task_in_a_context_variable_may_cancel_it(world: LoopWorld) -> None:
    current: ContextVar[Any] = ContextVar("current")

    async def reaps() -> None:
        await world.go.wait()
        current.get().cancel()

    async def body(world: LoopWorld) -> None:
        current.set(asyncio.ensure_future(world.stuck(b"")))
        reaper = asyncio.create_task(reaps())
        waiting = current.get()
        current.set(None)
        await asyncio.wait([waiting])
        reaper.cancel()

    assert "-" in holders(task_of(await world.look(body)))


def test_more_ways_out_than_the_bound_are_doubt() -> None:
    found = Found(Place(party=PartyName("p/task"), frames=()), [])
    for number in range(WAYS_OUT_MAX):
        found.add_way_out("a task", PartyName(f"p/{number}"))
    assert not found.doubt
    found.add_way_out("a task", PartyName("p/0"))
    assert not found.doubt
    found.add_way_out("a task", PartyName("p/one more"))
    assert found.doubt
    assert len(found.ways_out) == WAYS_OUT_MAX


async def test_a_call_that_another_task_holds_may_be_cancelled_there(world: LoopWorld) -> None:
    calls: list[Any] = []

    async def keeps() -> None:
        kept = list(calls)
        await world.go.wait()
        assert kept

    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")
        calls.append(call)
        keeper = asyncio.create_task(keeps())
        await call
        await keeper

    assert "-" in holders(handler_of(await world.look(body)))


_REGISTRY: set[Any] = set()


async def registers(world: LoopWorld, beside: Any) -> None:
    task = asyncio.ensure_future(world.stuck(b""))
    _REGISTRY.add(task)
    task.add_done_callback(_REGISTRY.discard)
    other = asyncio.create_task(beside)
    await task
    await other


async def test_a_registry_is_not_a_way_out_by_itself(world: LoopWorld) -> None:
    async def passes_by() -> None:
        assert isinstance(_REGISTRY, set)
        await world.go.wait()

    async def body(world: LoopWorld) -> None:
        await registers(world, passes_by())

    assert not holders(task_of(await world.look(body)))


async def test_a_registry_is_a_way_out_by_its_reaper(world: LoopWorld) -> None:
    async def reaps() -> None:
        await world.go.wait()
        for task in list(_REGISTRY):
            if not task.done():
                await asyncio.wait([task], timeout=FAR_SECONDS) or task.cancel()

    async def body(world: LoopWorld) -> None:
        await registers(world, reaps())

    assert any("reaps" in one.text for one in task_of(await world.look(body)).ways_out)


async def test_a_waiter_for_the_same_lock_is_not_a_way_out(world: LoopWorld) -> None:
    lock = world.front.aio.Lock("L")

    async def wants() -> None:
        async with lock:
            pass

    async def body(world: LoopWorld) -> None:
        async with lock:
            waiting = [asyncio.ensure_future(wants()) for _ in range(2)]
            await world.stuck(b"")
        await asyncio.gather(*waiting)

    look = await world.look(body)
    waiting = [one for one in look.parties if one is not handler_of(look)]
    (holder,) = {name for one in waiting for name in holders(one)}
    assert len(waiting) == 2
    assert handler_of(look).party.endswith(holder)  # it holds the tasks, and is stuck itself


async def test_a_tasks_done_callback_is_a_way_out(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        first, second = (asyncio.ensure_future(world.stuck(b"")) for _ in range(2))
        first.add_done_callback(lambda _: second.cancelled())
        await asyncio.gather(first, second, return_exceptions=True)

    look = await world.look(body, stuck=2)
    held = {one.party: holders(one) for one in look.parties if one.ways_out}
    assert len(held) == 1
    (party, (holder,)) = held.popitem()
    assert holder not in (party, "-")


async def _first_of(call: Any) -> None:
    async for _ in call:
        break


@pytest.mark.parametrize("read", ["alone", "item", "items"])
async def test_the_iterator_of_the_requests_may_fail(world: LoopWorld, read: str) -> None:
    async def feeds() -> AsyncIterator[bytes]:
        yield b"1"
        await world.go.wait()

    async def body(world: LoopWorld) -> None:
        if read == "alone":
            await world.upload(feeds())
        else:
            call = world.chat(feeds())
            await (call.read() if read == "item" else _first_of(call))

    (way,) = handler_of(await world.look(body)).ways_out
    assert way.party is None
    assert "feeds" in way.text


async def test_the_iterator_of_an_ended_request_stream_cannot_fail(world: LoopWorld) -> None:
    async def feeds() -> AsyncIterator[bytes]:
        yield b"1"

    async def body(world: LoopWorld) -> None:
        await world.upload(feeds())

    assert free_of_ways_out(await world.look(body))


async def test_a_stopping_server_ends_its_calls(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        stopping = asyncio.create_task(world.servers[0].stop(FAR_SECONDS))
        await world.stuck(b"")
        del stopping

    seen = handler_of(await world.look(body))
    if sys.version_info < (3, 11):  # the task that stops it cannot be read there
        assert ["stopped" in way.text for way in seen.ways_out] == [True]
    else:
        assert seen.ways_out == ()
        assert seen.deadline is not None  # the end of the grace period
        assert seen.deadline > time.time() + FAR_SECONDS / 2
    assert [wait.deadline is not None for wait in world.cut.waits if "#" in wait.waiter] == [True]  # known at the cut already
