"""Timers that end a task's wait are its deadline, however they refer to the call; each with a near miss that ends nothing."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.look.worlds import (
    LoopWorld,
    free_of_ways_out,
    handler_of,
    holders,
    seconds_to,
)

FAR_SECONDS = 60.0


async def test_nothing_may_end_a_plain_call(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    assert free_of_ways_out(await world.look(body))


async def test_nothing_ends_the_calls_of_a_handlers_tasks(world: LoopWorld) -> None:
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


@pytest.mark.parametrize("how", ["lambda", "partial", "default", "list", "object", "bus", "bus of calls"])
async def test_a_timer_may_refer_to_the_call_in_many_ways(world: LoopWorld, how: str) -> None:
    class Watch:
        __slots__ = ("call",)

        def __init__(self, call: Any) -> None:
            self.call = call

        def fire(self) -> None:
            self.call.cancel()

    class Bus:
        """Calls all subscribers."""

        def __init__(self, *subscribers: Callable[[], object]) -> None:
            self.handlers = defaultdict(list, late=list(subscribers))

        def emit(self, topic: str) -> None:
            for handler in list(self.handlers[topic]):
                handler()

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
            "bus": functools.partial(Bus(Watch(call).fire).emit, "late"),
            "bus of calls": functools.partial(Bus(call.cancel).emit, "late"),
        }
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, callbacks[how])
        await call
        timer.cancel()

    assert "-" in holders(handler_of(await world.look(body)))


async def test_the_search_runs_no_application_code(world: LoopWorld) -> None:
    asked: list[str] = []

    class Touchy:
        """Notes every attribute it is asked for."""

        __slots__ = ("held",)
        __module__ = property(lambda self: "no text")

        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            raise RuntimeError(name)

        def __call__(self) -> None:
            """A callback that mentions ``cancel``."""
            self.held.cancel()

        def __bool__(self) -> bool:
            raise RuntimeError

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    class Items(dict[str, Any]):
        """A dictionary that refuses to be iterated."""

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


async def test_a_timer_for_another_object_is_not_a_way_out(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, asyncio.Event().set)
        await world.stuck(b"")
        timer.cancel()

    assert free_of_ways_out(await world.look(body))


@pytest.mark.parametrize("how", ["future", "gather", "executor"])
async def test_a_callback_at_the_end_of_a_future_is_a_way_out(world: LoopWorld, how: str) -> None:
    """Whatever completes the future calls it: a timer, the last of several tasks, a thread."""
    go = threading.Event()

    async def body(world: LoopWorld) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(world.stuck(b""))
        if how == "future":
            over: asyncio.Future[Any] = loop.create_future()
            timer = loop.call_later(FAR_SECONDS, over.set_result, None)
        elif how == "gather":
            naps = [asyncio.ensure_future(asyncio.sleep(FAR_SECONDS)) for _ in range(2)]
            over = asyncio.gather(*naps, return_exceptions=True)
        else:
            over = loop.run_in_executor(None, go.wait, FAR_SECONDS)
        over.add_done_callback(lambda _: task.cancel())
        await task
        if how == "future":
            timer.cancel()
        elif how == "gather":
            over.cancel()
        go.set()

    (seen,) = [one for one in (await world.look(body)).parties if one.party.startswith("front/Do#1.")]
    if how == "future":
        assert 0 < seconds_to(seen) <= FAR_SECONDS
    else:
        assert holders(seen)
