"""Ways out of a task's wait that only a second look finds, family by family, each with a near miss that has none."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from stilltrue.model import PartyName
from stilltrue.protocol.look import Look, PartyLook
from stilltrue.runtime.look.ways_out import WAYS_OUT_MAX, Found
from stilltrue.runtime.places import Place
from tests.client.look.worlds import (
    LoopWorld,
    holders,
    report_of,
    settle,
)

FAR_SECONDS = 60.0


def handler_of(look: Look) -> PartyLook:
    return min(look.parties, key=lambda one: len(one.party))


def task_of(look: Look) -> PartyLook:
    (task,) = [one for one in look.parties if one is not handler_of(look)]
    return task


def seconds_to(seen: PartyLook) -> float:
    assert seen.deadline is not None
    return seen.deadline - time.time()


def free_of_ways_out(look: Look) -> bool:
    return all(one.unchanged and not one.ways_out and not one.doubt and one.deadline is None for one in look.parties)


# -- on an event loop: timers ------------------------------------------------------------------------------------------


async def test_nothing_may_end_a_plain_call(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    assert free_of_ways_out(await world.look(body))


async def test_nothing_may_end_what_a_handler_has_its_tasks_do(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"1")
        tasks = [asyncio.ensure_future(world.stuck(b"2")), asyncio.create_task(asyncio.wait_for(world.stuck(b"3"), None))]
        await asyncio.gather(call, *tasks, return_exceptions=True)

    look = await world.look(body, stuck=3)
    assert len(look.parties) == 4
    assert free_of_ways_out(look)


async def test_a_timer_that_cancels_the_call_is_a_deadline(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)
        await call
        timer.cancel()

    assert 50 < seconds_to(handler_of(await world.look(body))) <= FAR_SECONDS


@pytest.mark.parametrize("how", ["lambda", "partial", "default", "list", "object"])
async def test_a_timer_may_know_the_call_in_many_ways(world: LoopWorld, how: str) -> None:
    class Watch:
        __slots__ = ("call",)

        def __init__(self, call: Any) -> None:
            self.call = call

        def fire(self) -> None:
            self.call.cancel()

    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")

        def with_default(held: Any = call) -> None:
            held.cancel()

        callbacks: dict[str, Callable[[], object]] = {
            "lambda": lambda: call.cancel() and None,
            "partial": functools.partial(lambda held: held.cancel(), call),
            "default": with_default,
            "list": functools.partial(lambda held: [one.cancel() for one in held], [call]),
            "object": Watch(call).fire,
        }
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, callbacks[how])
        await call
        timer.cancel()

    assert "-" in holders(handler_of(await world.look(body)))


async def test_the_search_runs_nobodys_code(world: LoopWorld) -> None:
    asked: list[str] = []

    class Touchy:
        """Notes whatever it is asked."""

        __slots__ = ("held",)
        __module__ = property(lambda self: "no text")

        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            raise RuntimeError(name)

        def __call__(self) -> None:
            """Be a callback that speaks of ``cancel``."""
            self.held.cancel()

        def __bool__(self) -> bool:
            raise RuntimeError

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    class Items(dict[str, Any]):
        """A dictionary that will not be iterated."""

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError

        values = items = __iter__  # type: ignore[assignment]

    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")
        touchy = Touchy()
        Touchy.held.__set__(touchy, call)  # type: ignore[attr-defined]
        items = Items(call=call)
        timers = [asyncio.get_running_loop().call_later(FAR_SECONDS, callback) for callback in (touchy, lambda: items)]
        await call
        for timer in timers:
            timer.cancel()

    seen = handler_of(await world.look(body))
    assert holders(seen) == ["-", "-"]
    assert asked == []


async def test_a_timer_of_somebody_else_is_no_way_out(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, asyncio.Event().set)
        await world.stuck(b"")
        timer.cancel()

    assert free_of_ways_out(await world.look(body))


# -- on an event loop: other tasks -------------------------------------------------------------------------------------


async def test_who_sleeps_beside_a_task_may_cancel_it(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await world.go.wait()
        await task

    look = await world.look(body)
    (task,) = look.parties  # the handler itself is at work
    assert [holder.split("#")[0] for holder in holders(task)] == ["Do"]


async def test_who_awaits_a_task_and_nothing_else_is_no_way_out(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await task

    look = await world.look(body)
    assert len(look.parties) == 2
    assert free_of_ways_out(look)


async def test_a_watchdog_is_a_way_out_of_what_it_watches(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))

        async def watch() -> None:
            await world.go.wait()
            task.cancelling()

        dog = asyncio.create_task(watch())
        await task
        await dog

    look = await world.look(body)
    assert "-" in holders(task_of(look))
    assert not handler_of(look).ways_out


async def test_the_cancelling_of_a_gathering_is_one_of_its_children(world: LoopWorld) -> None:
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
async def test_a_watchdog_over_a_job_is_a_way_out_of_what_the_job_awaits(world: LoopWorld, how: str) -> None:
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
        watched.cancelling()

    async def body(world: LoopWorld) -> None:
        running = asyncio.create_task(job())
        dog = asyncio.create_task(watch(running))
        await running
        await dog

    look = await world.look(body)
    below = [seen for seen in look.parties if seen is not handler_of(look)]
    assert len(below) == (3 if how == "deeper" else 2)
    assert all("-" in holders(seen) for seen in below)


async def test_a_timer_that_cancels_a_job_is_a_deadline_of_what_the_job_awaits(world: LoopWorld) -> None:
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


async def test_a_sibling_that_joins_the_task_group_after_the_cut_is_a_way_out(world: LoopWorld) -> None:
    groups: list[asyncio.TaskGroup] = []

    async def body(world: LoopWorld) -> None:
        async def calls() -> None:
            await asyncio.create_task(asyncio.wait_for(world.stuck(b""), None))

        async with asyncio.TaskGroup() as group:
            groups.append(group)
            group.create_task(calls())

    async def joins() -> None:
        await world.go.wait()

    async def join() -> None:
        groups[-1].create_task(joins())

    assert free_of_ways_out(await world.look(body))
    late = await world.look(body, meanwhile=join)
    assert all("-" in holders(seen) for seen in late.parties if seen is not handler_of(late))


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


def test_more_ways_out_than_are_told_are_doubt() -> None:
    found = Found(Place(party=PartyName("p/task"), frames=()), [])
    for number in range(WAYS_OUT_MAX):
        found.add("a task", PartyName(f"p/{number}"))
    assert not found.doubt
    found.add("a task", PartyName("p/0"))
    assert not found.doubt
    found.add("a task", PartyName("p/one more"))
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


async def test_a_registry_is_no_way_out_but_for_who_reaps_it(world: LoopWorld) -> None:
    async def passes_by() -> None:
        assert isinstance(_REGISTRY, set)
        await world.go.wait()

    async def reaps() -> None:
        await world.go.wait()
        for task in list(_REGISTRY):
            if not task.done():
                await asyncio.wait([task], timeout=FAR_SECONDS) or task.cancel()

    for other, expected in ((passes_by, []), (reaps, ["-"])):

        async def body(world: LoopWorld, other: Any = other) -> None:
            task = asyncio.ensure_future(world.stuck(b""))
            _REGISTRY.add(task)
            task.add_done_callback(_REGISTRY.discard)
            beside = asyncio.create_task(other())
            await task
            await beside

        assert holders(task_of(await world.look(body))) == expected


async def test_who_waits_for_the_same_lock_is_no_way_out(world: LoopWorld) -> None:
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
    assert handler_of(look).party.endswith(holder)  # it has the tasks in its hands, and is stuck itself


async def test_what_is_called_at_the_end_of_a_task_is_a_way_out_by_it(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        first, second = (asyncio.ensure_future(world.stuck(b"")) for _ in range(2))
        first.add_done_callback(lambda _: second.cancelled())
        await asyncio.gather(first, second, return_exceptions=True)

    look = await world.look(body, stuck=2)
    held = {one.party: holders(one) for one in look.parties if one.ways_out}
    assert len(held) == 1
    (party, (holder,)) = held.popitem()
    assert holder not in (party, "-")


async def test_the_iterator_of_the_requests_may_fail(world: LoopWorld) -> None:
    async def feeds() -> AsyncIterator[bytes]:
        yield b"1"
        await world.go.wait()

    async def body(world: LoopWorld) -> None:
        await world.upload(feeds())

    (way,) = handler_of(await world.look(body)).ways_out
    assert way.party is None
    assert "feeds" in way.text


async def test_a_request_stream_that_has_ended_cannot(world: LoopWorld) -> None:
    async def feeds() -> AsyncIterator[bytes]:
        yield b"1"

    async def body(world: LoopWorld) -> None:
        await world.upload(feeds())

    assert free_of_ways_out(await world.look(body))


async def test_a_server_that_is_being_stopped_ends_what_it_serves(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        stopping = asyncio.create_task(world.servers[0].stop(FAR_SECONDS))
        await world.stuck(b"")
        del stopping

    seen = handler_of(await world.look(body))
    (way,) = seen.ways_out
    assert "stopped" in way.text
    assert [wait.deadline is not None for wait in world.cut.waits] == [True]  # known at the cut already
