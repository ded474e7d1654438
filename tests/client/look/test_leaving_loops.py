"""Code that may end the run of an event loop cancels its tasks: a watchdog there that calls ``sys.exit``."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.client.look.ways_out.closing import FAR_SECONDS
from tests.client.look.worlds import LoopWorld


async def exits(beats: list[int]) -> None:
    while True:
        await asyncio.sleep(FAR_SECONDS)
        if not beats:
            sys.exit(1)


async def raises(beats: list[int]) -> None:
    await asyncio.sleep(FAR_SECONDS)
    raise SystemExit(f"after {len(beats)}")


async def interrupts(_: list[int]) -> None:
    await asyncio.sleep(FAR_SECONDS)
    raise KeyboardInterrupt


def give_up(beats: list[int]) -> None:
    if not beats:
        sys.exit(1)


async def gives_up(beats: list[int]) -> None:
    await asyncio.sleep(FAR_SECONDS)
    give_up(beats)


async def exits_when_all_is_over(_: list[int]) -> None:
    await grpc.aio.server().wait_for_termination()
    sys.exit(0)


async def exits_when_interrupted(beats: list[int]) -> None:
    try:
        while True:
            await asyncio.sleep(FAR_SECONDS)
    except (KeyboardInterrupt, asyncio.CancelledError):
        if beats:
            sys.exit(0)


async def lives_on(beats: list[int]) -> None:
    while True:
        try:
            await asyncio.sleep(FAR_SECONDS)
            beats.append(1)
        except (SystemExit, KeyboardInterrupt):
            continue


async def way_out_beside(world: LoopWorld, begin: Callable[[asyncio.AbstractEventLoop], object]) -> list[str]:
    """The ways out of a task that is stuck in a call."""

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    begin(asyncio.get_running_loop())  # the new task is referenced nowhere, so it cannot be cancelled
    await asyncio.sleep(0)
    (seen,) = (await world.look(body)).parties
    return [one.text for one in seen.ways_out]


@pytest.mark.parametrize("beside", [exits, raises, interrupts, gives_up], ids=lambda one: one.__name__)
async def test_a_task_that_may_end_its_loop_is_a_way_out(world: LoopWorld, beside: Callable[[list[int]], Any]) -> None:
    found = await way_out_beside(world, lambda loop: loop.create_task(beside([])))
    assert any("end its event loop" in one for one in found), found


@pytest.mark.parametrize("beside", [exits_when_all_is_over, exits_when_interrupted, lives_on], ids=lambda one: one.__name__)
async def test_a_task_that_cannot_reach_its_exit_is_not_a_way_out(world: LoopWorld, beside: Callable[[list[int]], Any]) -> None:
    assert not await way_out_beside(world, lambda loop: loop.create_task(beside([])))


@pytest.mark.parametrize(
    ("callback", "what"),
    [
        (functools.partial(sys.exit, 1), "end its event loop"),
        (functools.partial(give_up, []), "end its event loop"),
        (functools.partial(os._exit, 1), "end the process"),
    ],
)
@pytest.mark.parametrize("given", ["a partial", "a function and its arguments"])
async def test_a_timer_that_may_end_its_loop_is_a_way_out(world: LoopWorld, callback: Any, what: str, given: str) -> None:
    called = (callback,) if given == "a partial" else (callback.func, *callback.args)
    found = await way_out_beside(world, lambda loop: loop.call_later(FAR_SECONDS, *called))
    assert any(what in one for one in found), found


async def test_a_timer_that_ends_nothing_is_not_a_way_out(world: LoopWorld) -> None:
    assert not await way_out_beside(world, lambda loop: loop.call_later(FAR_SECONDS, print, "exit"))


async def heartbeat() -> None:
    await asyncio.sleep(FAR_SECONDS)


async def served() -> None:
    await grpc.aio.server().wait_for_termination()


def exits_at_the_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        sys.exit(1)


def ends_at_the_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        os._exit(1)


@pytest.mark.parametrize(
    ("body", "callback", "expected"),
    [
        (heartbeat, exits_at_the_end, True),
        (heartbeat, ends_at_the_end, True),
        (heartbeat, print, False),
        (served, exits_at_the_end, False),
    ],
)
async def test_a_tasks_done_callback_may_end_the_loop(
    world: LoopWorld, body: Callable[[], Any], callback: Any, expected: bool
) -> None:
    found = await way_out_beside(world, lambda loop: loop.create_task(body()).add_done_callback(callback))
    assert bool(found) is expected, found


async def test_a_tasks_done_callback_may_close_the_channel(world: LoopWorld) -> None:
    def closes(_: object) -> None:
        closing.append(asyncio.ensure_future(world.channel.close()))

    closing: list[Any] = []
    assert await way_out_beside(world, lambda loop: loop.create_task(heartbeat()).add_done_callback(closes))


async def test_an_executor_items_done_callback_may_close_the_channel(world: LoopWorld) -> None:
    go = threading.Event()
    loop = asyncio.get_running_loop()

    def closes(_: object) -> None:
        asyncio.run_coroutine_threadsafe(world.channel.close(), loop)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(go.wait, FAR_SECONDS).add_done_callback(closes)
        try:
            assert await way_out_beside(world, lambda _: None)
        finally:
            go.set()
