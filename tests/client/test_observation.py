"""The waits of a handler on an event loop, as reported at the cut: for all, for one, until when, or unknown."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import CallTarget, PartyTarget
from stilltrue.runtime.introspection.tasks import blocking_future
from tests.client.observed_world import World, handler, of, subtasks
from tests.client.since_311 import timeout


@pytest.fixture
async def world(alone: Callable[..., Agent]) -> AsyncIterator[World]:
    world = World(alone("front"), alone("back"))
    await world.start()
    yield world
    await world.stop()


async def test_a_handler_that_awaits_a_call_waits_for_it(world: World) -> None:
    report = await world.report(lambda world: world.stuck(b""), stuck=1)
    (wait,) = report.waits
    (made,) = report.made
    assert (wait.waiter, wait.among, wait.needs, wait.deadline) == (handler(report), (CallTarget(number=made.number),), 1, None)
    assert made.party == handler(report)
    assert not wait.uncoloured


async def test_a_call_with_a_timeout_gives_its_wait_a_deadline(world: World) -> None:
    report = await world.report(lambda world: world.stuck(b"", timeout=60), stuck=1)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert 50 < wait.deadline - report.cut_at <= 60


async def test_the_deadline_of_the_served_call_ends_its_waits(world: World) -> None:
    report = await world.report(lambda world: world.stuck(b""), stuck=1, timeout=60)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert 50 < wait.deadline - report.cut_at <= 61  # gRPC rounds up the timeout that it sends


async def test_gather_is_stuck_when_its_remaining_children_are(world: World) -> None:
    async def body(world: World) -> None:
        await asyncio.gather(world.stuck(b"1"), world.quick(b"2"), world.quick(b"3"))

    report = await world.report(body, stuck=1)
    (wait,) = of(report, handler(report))
    (task,) = subtasks(report)
    assert (wait.among, wait.needs) == ((PartyTarget(party=task),), 1)
    assert task.startswith(handler(report) + ".")


async def test_gather_with_return_exceptions_needs_all(world: World) -> None:
    async def body(world: World) -> None:
        await asyncio.gather(world.stuck(b"1"), world.stuck(b"2"), world.quick(b"3"), return_exceptions=True)

    report = await world.report(body, stuck=2)
    (wait,) = of(report, handler(report))
    assert wait.needs == 2
    assert set(wait.among) == {PartyTarget(party=task) for task in subtasks(report)}


async def test_gather_may_end_by_the_failure_of_an_active_child(world: World) -> None:
    async def body(world: World) -> None:
        async def works() -> None:
            await world.go.wait()

        await asyncio.gather(world.stuck(b"1"), works())

    report = await world.report(body, stuck=1)
    (wait,) = of(report, handler(report))
    free = {target.party for target in wait.among if isinstance(target, PartyTarget)} - set(subtasks(report))
    assert wait.needs == 1
    assert len(free) == 1
    assert not of(report, free.pop())


async def test_first_completed_needs_one_and_all_completed_all(world: World) -> None:
    for when, needs in ((asyncio.FIRST_COMPLETED, 1), (asyncio.FIRST_EXCEPTION, 1), (asyncio.ALL_COMPLETED, 2)):
        world.go.clear()

        async def body(world: World, when: str = when) -> None:
            tasks = [asyncio.ensure_future(world.stuck(b"")) for _ in range(2)]
            await asyncio.wait(tasks, return_when=when)
            await asyncio.wait(tasks)

        report = await world.report(body, stuck=2)
        (wait,) = of(report, handler(report))
        assert (wait.needs, len(wait.among)) == (needs, 2)
        assert wait.deadline is None


async def test_a_hedged_call_whose_loser_is_cancelled_leaves_nothing_behind(world: World) -> None:
    async def body(world: World) -> None:
        loser, winner = (asyncio.ensure_future(call(b"")) for call in (world.stuck, world.quick))
        await asyncio.wait((loser, winner), return_when=asyncio.FIRST_COMPLETED)
        loser.cancel()
        await asyncio.wait((loser,))
        await world.stuck(b"")

    report = await world.report(body, stuck=1)
    (wait,) = report.waits
    assert wait.waiter == handler(report)
    assert [made.doubtful for made in report.made] == [False, True]  # the losing call was cancelled, so it is in doubt


if hasattr(asyncio, "TaskGroup"):  # since Python 3.11

    async def test_a_task_group_waits_for_one_and_each_task_also_for_its_siblings(world: World) -> None:
        async def body(world: World) -> None:
            async def calls() -> None:
                await world.stuck(b"")

            async with asyncio.TaskGroup() as group:
                group.create_task(calls())
                group.create_task(calls())

        report = await world.report(body, stuck=2)
        (wait,) = of(report, handler(report))
        members = subtasks(report)
        assert wait.needs == 1
        assert set(wait.among) == {PartyTarget(party=member) for member in members}
        for member, own in members.items():
            others = {PartyTarget(party=party) for party in (*members, handler(report)) if party != member}
            assert set(own.among[1:]) == others
            assert own.needs == 1


async def test_wait_for_and_timeout_end_the_waits_inside_them(world: World) -> None:
    async def by_wait_for(world: World) -> None:
        await asyncio.wait_for(world.stuck(b""), 60)

    async def by_timeout(world: World) -> None:
        async with timeout(60):
            await asyncio.gather(world.stuck(b""))

    async def by_wait(world: World) -> None:
        await asyncio.wait([asyncio.ensure_future(world.stuck(b""))], timeout=60)

    async def by_timer(world: World) -> None:
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(60, task.cancel)
        await world.stuck(b"")
        timer.cancel()

    for body in (by_wait_for, by_timeout, by_wait, by_timer):
        world.go.clear()
        report = await world.report(body, stuck=1)
        waits = of(report, handler(report)) + list(subtasks(report).values())
        assert waits
        for wait in waits:
            assert wait.deadline is not None, body.__name__
            assert 50 < wait.deadline - report.cut_at <= 60


async def test_awaiting_a_task_is_waiting_for_it(world: World) -> None:
    async def body(world: World) -> None:
        async def deeper() -> None:
            await asyncio.create_task(deepest())

        async def deepest() -> None:
            await world.stuck(b"")

        await asyncio.create_task(deeper())

    report = await world.report(body, stuck=1)
    (first,) = of(report, handler(report))
    (second,) = of(report, first.among[0].party)  # type: ignore[union-attr]
    (third,) = of(report, second.among[0].party)  # type: ignore[union-attr]
    assert isinstance(third.among[0], CallTarget)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the generator on the stack of a task is not found")
@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_the_next_one_of_as_completed_is_one_of_those_that_are_left(world: World, seconds: float | None) -> None:
    async def body(world: World) -> None:
        calls = [world.stuck(b"1"), world.quick(b"2"), world.stuck(b"3")]
        for one in asyncio.as_completed([asyncio.ensure_future(call) for call in calls], timeout=seconds):
            await one

    report = await world.report(body, stuck=2)
    (wait,) = of(report, handler(report))
    assert wait.needs == 1
    assert set(wait.among) == {PartyTarget(party=task) for task in subtasks(report)}
    assert len(wait.among) == 2
    assert (wait.deadline is None) == (seconds is None)
    assert all(one.deadline is None for one in subtasks(report).values()), "its timeout cancels none of them"


async def test_a_shield_does_not_pass_on_its_awaiters_deadline(world: World) -> None:
    async def body(world: World) -> None:
        async def call() -> None:
            await world.stuck(b"")

        await asyncio.wait_for(asyncio.shield(asyncio.create_task(call())), 60)

    report = await world.report(body, stuck=1)
    (wait,) = of(report, handler(report))
    (task,) = subtasks(report)
    assert wait.among == (PartyTarget(party=task),)
    assert wait.deadline is not None
    if sys.version_info < (3, 12):  # the timer belongs to the handler itself, so it counts for everything that it has started
        assert subtasks(report)[task].deadline is None


async def test_a_shielded_gather_is_a_wait_for_its_children(world: World) -> None:
    async def body(world: World) -> None:
        await asyncio.shield(asyncio.gather(world.stuck(b"1"), world.stuck(b"2"), return_exceptions=True))

    report = await world.report(body, stuck=2)
    (wait,) = of(report, handler(report))
    assert wait.needs == 2
    assert set(wait.among) == {PartyTarget(party=task) for task in subtasks(report)}


async def test_an_unknown_await_is_not_a_wait(world: World) -> None:
    async def body(world: World) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await world.go.wait()
        await task

    report = await world.report(body, stuck=1)
    assert not of(report, handler(report))
    assert len(subtasks(report)) == 1


async def test_a_task_about_to_be_cancelled_is_not_stuck(world: World) -> None:
    held: list[asyncio.Task[Any]] = []

    async def body(_: object) -> None:
        held.append(asyncio.ensure_future(world.stuck(b"")))
        await asyncio.wait(held)

    world.body = body
    call: Any = world.outside.unary_unary("/t.T/Do")(b"")
    while not any(served.serving for served in world.back.live.recorder.calls_served.values()):
        await asyncio.sleep(0.002)
    held[0].cancel()  # it has not run yet
    report = world.front.live.marked(SnapshotId(1))
    assert report is not None
    (wait,) = subtasks(report).values()
    assert wait.deadline is not None
    assert wait.deadline <= report.cut_at
    assert await call == b"done"


async def test_a_loop_whose_timers_cannot_be_read_leaves_every_wait_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stilltrue.runtime.introspection.cut.tasks_at_cut.timers", lambda loop: None)
    report = await world.report(lambda world: world.stuck(b""), stuck=1)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert wait.deadline <= report.cut_at


async def test_an_observer_that_fails_leaves_every_wait_in_doubt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stilltrue.runtime.introspection.cut.tasks_at_cut.read", lambda *_: 1 / 0)
    report = await world.report(lambda world: world.stuck(b""), stuck=1)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert wait.deadline <= report.cut_at


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("observation.TASKS_MAX", 0),
        ("searchers.LiveProcessView", lambda *_: 1 / 0),
        ("tasks_at_cut.siblings_of", lambda _: 1 / 0),
    ],
    ids=["too many tasks", "threads that cannot be read", "a task that cannot be read"],
)
async def test_an_impossible_observation_leaves_every_wait_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, broken: Any
) -> None:
    monkeypatch.setattr(f"stilltrue.runtime.introspection.cut.{name}", broken)
    report = await world.report(lambda world: world.stuck(b""), stuck=1)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert wait.deadline <= report.cut_at


async def test_a_task_that_moves_while_it_is_read_is_in_doubt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()

    def moving(task: asyncio.Task[Any]) -> Any:
        first = id(task) not in seen
        seen.add(id(task))
        return blocking_future(task) if first else None

    monkeypatch.setattr("stilltrue.runtime.introspection.cut.tasks_at_cut.blocking_future", moving)
    report = await world.report(lambda world: world.stuck(b""), stuck=1)
    (wait,) = report.waits
    assert wait.deadline is not None
    assert wait.deadline <= report.cut_at


async def test_the_deadline_of_the_served_call_ends_the_waits_of_the_handlers_tasks(world: World) -> None:
    async def body(world: World) -> None:
        await asyncio.gather(world.stuck(b""), asyncio.create_task(calls(world)))

    async def calls(world: World) -> None:
        await world.stuck(b"")

    report = await world.report(body, stuck=2, timeout=60)
    waits = subtasks(report)
    assert waits
    assert all(wait.deadline is not None and wait.deadline - report.cut_at <= 61 for wait in waits.values())


@pytest.mark.parametrize("come", [False, True])
async def test_a_future_awaited_beside_a_task_may_complete_by_itself(world: World, come: bool) -> None:
    other = asyncio.get_running_loop().create_future()

    async def body(world: World) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        await task

    def at_the_cut() -> None:
        if come:
            other.set_result(None)  # the waiter has not noticed yet

    report = await world.report(body, stuck=1, at_the_cut=at_the_cut)
    assert not of(report, handler(report))
    if not come:
        other.set_result(None)


async def test_tasks_of_one_name_are_different_parties(world: World) -> None:
    async def body(world: World) -> None:
        async def calls() -> None:
            await world.stuck(b"")

        await asyncio.gather(*(asyncio.create_task(calls(), name="same") for _ in range(2)))

    report = await world.report(body, stuck=2)
    assert sorted(party.removeprefix(handler(report)) for party in subtasks(report)) == [".same", ".same~2"]


async def test_a_failing_call_is_settled_with_its_stamp(world: World) -> None:
    async def body(world: World) -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await world.fail(b"")
        await world.stuck(b"")

    report = await world.report(body, stuck=1)
    assert len(report.made) == 1
