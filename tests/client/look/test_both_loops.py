"""What ends a task's wait is found on uvloop's loop as on asyncio's; each with a near miss that ends nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import uvloop

from stilltrue import Agent
from stilltrue.protocol.requests.look import Look
from tests.client.look.worlds import LoopWorld, free_of_ways_out, handler_of, seconds_to
from tests.client.since_311 import Runner

FAR_SECONDS = 60.0
Watch = Callable[[Callable[[], object], AsyncExitStack], Awaitable[None]]
"""Has a given function called sooner or later, until the stack is left."""


class Played:
    """The world of one event loop, run as long as a look takes."""

    def __init__(self, runner: Runner, world: LoopWorld) -> None:
        self.runner = runner
        self.world = world

    def look(self, body: Callable[[LoopWorld], Awaitable[None]]) -> Look:
        """The front's look at itself while ``body`` runs in its handler."""
        return self.runner.run(self.world.look(body))


@pytest.fixture(
    params=[pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.SelectorEventLoop, id="asyncio")]
)
def played(request: pytest.FixtureRequest, alone: Callable[..., Agent]) -> Iterator[Played]:
    with Runner(loop_factory=request.param) as runner:
        world = LoopWorld(alone("front"), alone("back"))
        runner.run(world.start())
        yield Played(runner, world)
        runner.run(world.stop())


async def timer(act: Callable[[], object], stack: AsyncExitStack) -> None:
    stack.callback(asyncio.get_running_loop().call_later(FAR_SECONDS, act).cancel)


async def timer_at(act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    stack.callback(loop.call_at(loop.time() + FAR_SECONDS, partial(act)).cancel)


async def watchdog(act: Callable[[], object], stack: AsyncExitStack) -> None:
    async def watches() -> None:
        await asyncio.sleep(FAR_SECONDS)
        act()

    stack.callback(asyncio.create_task(watches()).cancel)


async def reader(act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop, (near, far) = asyncio.get_running_loop(), socket.socketpair()
    stack.enter_context(near)
    stack.enter_context(far)
    loop.add_reader(near, act)
    stack.callback(loop.remove_reader, near)


class Told(asyncio.Protocol, asyncio.DatagramProtocol, asyncio.SubprocessProtocol):
    """Acts on every event it receives."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.over = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.act()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.act()

    def process_exited(self) -> None:
        self.over.set_result(None)
        self.act()


async def connection(act: Callable[[], object], stack: AsyncExitStack) -> None:
    near, far = socket.socketpair()
    stack.enter_context(far)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: Told(act), sock=near)
    stack.callback(transport.close)


async def datagrams(act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Told(act), local_addr=("127.0.0.1", 0))
    stack.callback(transport.close)


async def child(act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    told = Told(act)
    transport, _ = await loop.subprocess_exec(lambda: told, sys.executable, "-c", "input()", stdout=None, stderr=None)

    async def ends() -> None:
        transport.kill()
        await told.over
        transport.close()

    stack.push_async_callback(ends)


async def loop_of_a_thread(act: Callable[[], object], stack: AsyncExitStack) -> None:
    own = asyncio.get_running_loop()
    other = uvloop.new_event_loop() if isinstance(own, uvloop.Loop) else asyncio.SelectorEventLoop()
    other.call_later(FAR_SECONDS, own.call_soon_threadsafe, act)
    thread = threading.Thread(target=other.run_forever)
    thread.start()

    def ends() -> None:
        other.call_soon_threadsafe(other.stop)
        thread.join()
        other.close()

    stack.callback(ends)


async def task_of_a_loop_of_a_thread(act: Callable[[], object], stack: AsyncExitStack) -> None:
    own = asyncio.get_running_loop()
    other = uvloop.new_event_loop() if isinstance(own, uvloop.Loop) else asyncio.SelectorEventLoop()
    over = asyncio.Event()

    async def watches() -> None:
        await asyncio.wait([asyncio.ensure_future(over.wait())], timeout=FAR_SECONDS)
        own.call_soon_threadsafe(act)

    def runs() -> None:
        other.run_until_complete(watches())
        other.close()

    thread = threading.Thread(target=runs)
    thread.start()

    def ends() -> None:
        other.call_soon_threadsafe(over.set)
        thread.join()

    stack.callback(ends)


WATCHES = [timer, timer_at, watchdog, reader, connection, datagrams, child, loop_of_a_thread, task_of_a_loop_of_a_thread]


@pytest.mark.parametrize("cancels", [True, False], ids=["ends it", "near miss"])
@pytest.mark.parametrize("watch", WATCHES, ids=lambda one: one.__name__)
def test_the_ways_out_of_a_tasks_wait(played: Played, watch: Watch, cancels: bool) -> None:
    async def body(world: LoopWorld) -> None:
        calls: list[Any] = []

        def ends() -> None:
            for call in calls:
                call.cancel()

        async with AsyncExitStack() as stack:
            await watch(ends if cancels else partial(int, 0), stack)
            calls.append(world.stuck(b""))
            await calls[0]

    seen = handler_of(played.look(body))
    assert (bool(seen.ways_out) or seen.deadline is not None) is cancels, (seen.ways_out, seen.deadline)
    assert not seen.doubt


def test_an_alarm_that_cancels_the_call_is_a_way_out(played: Played) -> None:
    async def body(world: LoopWorld) -> None:
        call, loop = world.stuck(b""), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGALRM, call.cancel)
        signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)
        await call
        signal.setitimer(signal.ITIMER_REAL, 0)
        loop.remove_signal_handler(signal.SIGALRM)

    ways_out = [way.text for way in handler_of(played.look(body)).ways_out]
    assert any(text.startswith("SIGALRM's handler") for text in ways_out), ways_out


def test_a_timer_that_cancels_the_call_is_its_deadline(played: Played) -> None:
    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")
        timer = asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)
        await call
        timer.cancel()

    assert FAR_SECONDS / 2 < seconds_to(handler_of(played.look(body))) <= FAR_SECONDS


def test_nothing_ends_a_plain_call(played: Played) -> None:
    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    assert free_of_ways_out(played.look(body))
