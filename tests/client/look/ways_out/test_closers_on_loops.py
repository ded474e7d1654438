"""Code on the same event loop that may close or stop what a task depends on, or cancel the task."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import Report
from tests.client.look.ways_out.closing import (
    FAR_SECONDS,
)
from tests.client.look.worlds import LoopWorld, holders, look_at, look_in_its_wait, of, report_when, settle

if sys.version_info >= (3, 11):
    from asyncio import Runner
else:
    from backports.asyncio.runner import Runner  # pytest-asyncio depends on it


async def later_closes(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await world.channel.close()


async def later_stops(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await world.servers[0].stop(0)


async def cancels_all(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    for task in asyncio.all_tasks():
        task.cancel()


async def for_ever(world: LoopWorld) -> None:
    await grpc.aio.server().wait_for_termination()
    await world.channel.close()


async def serves_in_its_block(world: LoopWorld) -> None:
    async with world.channel:
        await grpc.aio.server().wait_for_termination()


async def counts_all(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    assert asyncio.all_tasks()


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        *((later_closes, True), (later_stops, True), (cancels_all, True)),
        *((for_ever, False), (serves_in_its_block, False), (counts_all, False)),
    ],
)
async def test_whether_a_task_may_close_stop_or_cancel(
    world: LoopWorld, beside: Callable[[LoopWorld], Any], expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    task = asyncio.create_task(beside(world))
    await asyncio.sleep(0)
    del task  # a holder could cancel the task, which would close its channel
    (seen,) = (await world.look(body)).parties
    assert bool(seen.ways_out) is expected, seen.ways_out


def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def cancel_each() -> list[bool]:
    return [task.cancel() for task in asyncio.all_tasks()]


def count_all() -> None:
    assert asyncio.all_tasks()


def leave() -> None:
    sys.exit(0)


@pytest.mark.parametrize("by_protocol", [False, True], ids=["reader", "protocol"])
@pytest.mark.parametrize(("act", "expected"), [(cancel_all, True), (cancel_each, True), (leave, True), (count_all, False)])
async def test_what_a_loop_calls_for_a_socket_may_cancel_all_tasks(
    world: LoopWorld, act: Callable[[], object], expected: bool, by_protocol: bool
) -> None:
    class Listener(asyncio.Protocol):
        """A control socket."""

        def data_received(self, data: bytes) -> None:
            """A command has come."""
            act()

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    transport = None
    if by_protocol:
        transport, _ = await loop.create_connection(Listener, sock=ours)
    else:
        loop.add_reader(ours, act)
    await settle()
    (seen,) = (await world.look(body)).parties
    if transport is None:
        loop.remove_reader(ours)
        ours.close()
    else:
        transport.close()
    theirs.close()
    assert bool(seen.ways_out) is expected, seen.ways_out


@pytest.mark.parametrize("woken", [True, False])
async def test_a_task_that_stops_a_server_once_a_timer_sets_its_event_is_a_way_out(world: LoopWorld, woken: bool) -> None:
    stop = asyncio.Event()

    async def serves() -> None:
        await stop.wait()
        await world.servers[0].stop(0)

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    asyncio.get_running_loop().call_later(FAR_SECONDS, stop.set if woken else int)
    serving = asyncio.create_task(serves())
    await settle()
    del serving
    (seen,) = (await world.look(body)).parties
    assert bool(seen.ways_out) is woken, seen.ways_out


async def test_a_timer_may_have_the_channel_closed(world: LoopWorld) -> None:
    closing: list[Any] = []
    timer = asyncio.get_running_loop().call_later(
        FAR_SECONDS, lambda: closing.append(asyncio.create_task(world.channel.close()))
    )

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    (seen,) = (await world.look(body)).parties
    timer.cancel()
    assert holders(seen) == ["-"]


def in_the_block_of_a_runner(main: Coroutine[Any, Any, None]) -> None:
    with Runner() as runner:
        runner.run(main)


@pytest.mark.parametrize("run", [asyncio.run, in_the_block_of_a_runner])
@pytest.mark.parametrize("ends", [True, False])
def test_the_end_of_asyncio_run_cancels_the_other_tasks(
    alone: Callable[..., Agent], ends: bool, run: Callable[[Any], None]
) -> None:
    front, back = alone("front"), alone("back")
    seen: list[Any] = []

    async def main(world: LoopWorld) -> None:
        async def body(world: LoopWorld) -> None:
            await world.stuck(b"")

        world.body = body
        await world.start()
        call: Any = world.outside.unary_unary("/t.T/Do")(b"")
        await world.held.acquire()
        looked = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_soon(threading.Thread(target=look, args=(loop, looked)).start)  # once this task waits
        if ends:
            await asyncio.wait_for(looked.wait(), FAR_SECONDS)
        else:
            await looked.wait()
        world.go.set()
        await call
        await world.stop()

    def look(loop: asyncio.AbstractEventLoop, looked: asyncio.Event) -> None:
        report = report_when(front, _handler_waits)
        seen.append(of(look_at(front, report), "front/Do#"))
        loop.call_soon_threadsafe(looked.set)

    run(main(LoopWorld(front, back)))
    assert bool(seen[0].ways_out) is ends, seen[0].ways_out


def _handler_waits(report: Report) -> bool:
    return any(wait.waiter.startswith("front/Do#") for wait in report.waits)


@pytest.mark.parametrize("closes", [True, False])
def test_closing_a_runner_cancels_tasks_that_nothing_refers_to(alone: Callable[..., Agent], closes: bool) -> None:
    world, looked = LoopWorld(alone("front"), alone("back")), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    async def serve() -> None:
        world.body = body
        await world.start()
        call: Any = world.outside.unary_unary("/t.T/Do")(b"")
        await call

    async def main() -> None:
        serving = asyncio.ensure_future(serve())
        serving.add_done_callback(lambda _: None)
        del serving
        loops.append(asyncio.get_running_loop())
        await asyncio.wait_for(looked.wait(), FAR_SECONDS)
        world.go.set()
        await settle()
        await world.stop()

    def run() -> None:
        if closes:
            with runner:
                runner.run(main())
        else:
            runner.run(main())

    runner = Runner()
    thread = threading.Thread(target=run)
    thread.start()
    seen = [one.text for one in look_in_its_wait(world.front, "front/Do#").ways_out]
    loops[0].call_soon_threadsafe(looked.set)
    thread.join()
    runner.close()
    assert any("may cancel all tasks" in one for one in seen) is closes, seen


@pytest.mark.parametrize("stops", [True, False])
def test_stopping_a_loop_lets_its_runner_cancel_all_tasks(alone: Callable[..., Agent], stops: bool) -> None:
    front, back = alone("front"), alone("back")
    loop, over = asyncio.new_event_loop(), threading.Event()
    world = LoopWorld(front, back)

    async def serve() -> None:
        async def body(world: LoopWorld) -> None:
            await world.stuck(b"")

        world.body = body
        await world.start()
        call: Any = world.outside.unary_unary("/t.T/Do")(b"")
        await call

    def run() -> None:
        served = loop.create_task(serve())
        loop.run_forever()
        loop.run_until_complete(served)
        loop.run_until_complete(world.stop())  # first: if gRPC's own tasks are cancelled, its core writes to freed memory
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.close()

    def beside() -> None:
        if not over.wait(FAR_SECONDS) and stops:
            loop.call_soon_threadsafe(loop.stop)

    threads = [threading.Thread(target=run), threading.Thread(target=beside if stops else over.wait)]
    for thread in threads:
        thread.start()
    seen = look_in_its_wait(front, "front/Do#")
    over.set()
    loop.call_soon_threadsafe(world.go.set)
    loop.call_soon_threadsafe(loop.stop)
    for thread in threads:
        thread.join()
    assert bool(seen.ways_out) is stops, seen.ways_out


def cancels_all_of(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        loop.call_soon_threadsafe(task.cancel)


def cancels_all_by_a_callback(loop: asyncio.AbstractEventLoop) -> None:
    def drain() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    loop.call_soon_threadsafe(drain)


def counts_all_of(loop: asyncio.AbstractEventLoop) -> None:
    len(asyncio.all_tasks(loop))


@pytest.mark.parametrize(
    ("act", "expected"), [(cancels_all_of, True), (cancels_all_by_a_callback, True), (counts_all_of, False)]
)
async def test_a_thread_without_a_loop_may_cancel_all_tasks_of_one(
    world: LoopWorld, act: Callable[[asyncio.AbstractEventLoop], None], expected: bool
) -> None:
    over, loop = threading.Event(), asyncio.get_running_loop()

    def watches() -> None:
        if not over.wait(FAR_SECONDS):
            act(loop)

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    thread = threading.Thread(target=watches)
    thread.start()
    (seen,) = (await world.look(body)).parties
    over.set()
    thread.join()
    assert bool(seen.ways_out) is expected, seen.ways_out


_WORLDS: list[LoopWorld] = []


async def closes_in_the_end() -> AsyncIterator[int]:
    try:
        while True:
            yield 1
    finally:
        await _WORLDS[0].channel.close()


async def counts_in_the_end() -> AsyncIterator[int]:
    try:
        while True:
            yield 1
    finally:
        len(_WORLDS)


@pytest.mark.parametrize(("ticks", "expected"), [(closes_in_the_end, True), (counts_in_the_end, False)])
async def test_who_closes_an_asynchronous_generator_runs_its_rest(
    world: LoopWorld, monkeypatch: pytest.MonkeyPatch, ticks: Callable[[], AsyncIterator[int]], expected: bool
) -> None:
    monkeypatch.setitem(globals(), "_WORLDS", [world])

    async def watches() -> None:
        every = ticks()
        await anext(every)
        await asyncio.sleep(FAR_SECONDS)
        await every.aclose()  # type: ignore[attr-defined]

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    watching = asyncio.create_task(watches())
    await asyncio.sleep(0)
    look = await world.look(body)
    watching.cancel()
    (seen,) = look.parties
    assert any("which may close" in way.text for way in seen.ways_out) is expected, seen.ways_out


_CALLS: list[Any] = []


class Ended(asyncio.SubprocessProtocol):
    """Cancels what is in the module when a child process ends."""

    def process_exited(self) -> None:
        for call in _CALLS:
            call.cancel()


class EndedQuietly(asyncio.SubprocessProtocol):
    """Does not."""

    def process_exited(self) -> None:
        len(_CALLS)


@pytest.mark.parametrize(("protocol", "expected"), [(Ended, True), (EndedQuietly, False)])
async def test_the_end_of_a_child_process_without_pipes_may_cancel_a_call(
    world: LoopWorld, protocol: type[asyncio.SubprocessProtocol], expected: bool
) -> None:
    command = (sys.executable, "-c", f"import time; time.sleep({FAR_SECONDS})")
    transport, _ = await asyncio.get_running_loop().subprocess_exec(protocol, *command, stdin=None, stdout=None, stderr=None)

    async def body(world: LoopWorld) -> None:
        call = world.stuck(b"")
        _CALLS.append(call)
        await call

    look = await world.look(body)
    _CALLS.clear()
    transport.kill()
    transport.close()
    (seen,) = (one for one in look.parties if "/Do" in one.party)
    assert any("a protocol" in way.text for way in seen.ways_out) is expected, seen.ways_out
