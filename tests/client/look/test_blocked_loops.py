"""An event loop blocked by a task or callback: everything still to run there waits for that and cannot help it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from stilltrue import Agent
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.runtime.introspection import threads_and_tasks
from tests.client.look.worlds import PATIENCE_SECONDS, Stuck, look_at, of, report_when, serving


def test_the_shells_are_in_the_files_by_which_their_frames_are_known() -> None:
    for file in (*threads_and_tasks._SHELLS, *threads_and_tasks._BLOCKING):
        assert Path(file).exists(), file


class FrontLoop:
    """A server on a loop in its own thread, whose method Do runs a body of the test."""

    def __init__(self, front: Agent) -> None:
        self.front = front
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="loop")
        self.thread.start()
        self.bodies: dict[bytes, Callable[[], Awaitable[object]]] = {}
        self.address = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(PATIENCE_SECONDS)
        self.channel = grpc.insecure_channel(self.address)
        self.do: Any = self.channel.unary_unary("/l/Do")
        self.calls: list[Any] = []

    async def _start(self) -> str:
        async def do(request: bytes, context: Any) -> bytes:
            await self.bodies[request]()
            return request

        self.server = grpc.aio.server(interceptors=[self.front.aio_server_interceptor()])
        methods: dict[str, Any] = {"Do": grpc.unary_unary_rpc_method_handler(do)}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("l", methods),))
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        return address

    def run(self, name: bytes, body: Callable[[], Awaitable[object]]) -> None:
        """Call Do, which runs ``body``."""
        self.bodies[name] = body
        self.calls.append(self.do.future(name, timeout=10 * PATIENCE_SECONDS))

    def stop(self) -> None:
        """Stop the server and its loop."""
        asyncio.run_coroutine_threadsafe(self.server.stop(0), self.loop).result(PATIENCE_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        self.channel.close()


@pytest.fixture
def world(alone: Callable[..., Agent]) -> Iterator[FrontLoop]:
    world = FrontLoop(alone("front"))
    yield world
    world.stop()


def waits_of(report: Report, waiter: str) -> list[LocalWait]:
    """The waits for parties of the parties whose names begin with ``name``."""
    return [wait for wait in report.waits if wait.waiter.startswith(waiter) and isinstance(wait.among[0], PartyTarget)]


def targets(wait: LocalWait) -> list[str]:
    """The parties that a wait is for."""
    return [target.party for target in wait.among if isinstance(target, PartyTarget)]


def test_a_call_accepted_earlier_waits_for_the_party_that_blocks_the_loop(
    alone: Callable[..., Agent], world: FrontLoop, stuck: Stuck
) -> None:
    accepted = threading.Event()

    async def sleeps() -> None:
        accepted.set()
        await asyncio.sleep(0.05)

    async def blocks() -> None:
        get(b"")

    with serving(alone("back"), Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = world.front.channel(channel).unary_unary("/s/Get")
        world.run(b"sleeps", sleeps)
        assert accepted.wait(PATIENCE_SECONDS)
        world.run(b"blocks", blocks)
        stuck.wait_for_callers()
        report = report_when(world.front, lambda report: bool(waits_of(report, "front/Do#1")))
        (wait,) = waits_of(report, "front/Do#1")
        assert targets(wait) == ["front/Do#2"]
        look = of(look_at(world.front, report), "front/Do#1")
        assert (look.unchanged, look.doubt) == (True, "")
        assert {way.party for way in look.ways_out} <= {"front/Do#2"}  # for which it waits anyway
        assert not any(call.interruptible for call in report.served if call.party in ("front/Do#1", "front/Do#2"))
        stuck.go.set()
        for call in world.calls:
            assert call.result(PATIENCE_SECONDS)


def test_on_a_loop_with_unreadable_timers_only_the_blocking_party_is_certain(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front = alone("front")

    async def parks(channel: Any) -> None:
        await channel.unary_unary("/s/Get")(b"")

    async def both(address: str, get: Any) -> None:
        own = asyncio.current_task()
        assert own is not None
        own.set_name("blocks")
        async with grpc.aio.insecure_channel(address) as channel:
            tasks = [asyncio.create_task(parks(front.channel(channel)), name="parks")]
            await asyncio.to_thread(stuck.wait_for_callers)
            get(b"")  # blocks the loop, so no timer fires
            await tasks[0]

    def run(address: str, get: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(both(address, get))

    with serving(alone("back"), Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        thread = threading.Thread(target=run, args=(address, get))
        thread.start()
        report = report_when(front, lambda report: len({wait.waiter for wait in report.waits}) == 2)
        looks = look_at(front, report)
        blocking, parking = (of(looks, name) for name in ("front/task:blocks", "front/task:parks"))
        assert (blocking.unchanged, blocking.ways_out, blocking.doubt) == (True, (), "")
        assert "front/task:blocks" in {way.party for way in parking.ways_out}, "whatever is due there comes after it"
        stuck.go.set()
        thread.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("ends", [False, True])
def test_a_main_task_on_a_blocked_loop_ends_only_if_what_it_awaits_may_come(
    alone: Callable[..., Agent], stuck: Stuck, ends: bool
) -> None:
    front = alone("front")

    async def main(get: Any) -> None:
        own = asyncio.current_task()
        assert own is not None
        own.set_name("main")
        server = grpc.aio.server()
        await server.start()
        served.append((asyncio.get_running_loop(), server))
        blocking = asyncio.create_task(blocks(get), name="blocks")
        if ends:
            await asyncio.sleep(0.05)
        else:
            await server.wait_for_termination()
        await blocking
        await server.stop(0)

    async def blocks(get: Any) -> None:
        get(b"")  # begins once the main task is suspended

    served: list[tuple[asyncio.AbstractEventLoop, grpc.aio.Server]] = []
    with serving(alone("back"), Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        thread = threading.Thread(target=lambda: asyncio.run(main(get)))
        thread.start()
        report = report_when(front, lambda report: len({wait.waiter for wait in report.waits}) == 2)
        seen = of(look_at(front, report), "front/task:blocks")
        assert [way.party for way in seen.ways_out] == (["front/task:main"] if ends else [])
        ((loop, server),) = served
        stopping = asyncio.run_coroutine_threadsafe(server.stop(0), loop)
        stuck.go.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert ends or stopping.done()


@pytest.mark.parametrize("begins", ["soon", "by a timer", "by a descriptor"])
def test_a_callback_that_waits_for_its_own_loop_waits_for_itself(alone: Callable[..., Agent], begins: str) -> None:
    """A published bug: what other threads do by ``run_coroutine_threadsafe`` is done by a callback of the loop."""
    front = alone("front")
    loop, read, write = asyncio.new_event_loop(), *socket.socketpair()
    found: list[Any] = []

    async def one() -> int:
        return 1

    def waits() -> None:
        loop.remove_reader(read)
        found.append(asyncio.run_coroutine_threadsafe(one(), loop))
        with contextlib.suppress(CancelledError):
            found[0].result()

    async def main() -> None:
        if begins == "soon":
            loop.call_soon(waits)
        elif begins == "by a timer":
            loop.call_later(0.01, waits)
        else:
            loop.add_reader(read, waits)
            write.send(b"1")
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: loop.run_until_complete(loop.create_task(main(), name="main")), name="loop")
    thread.start()
    try:
        report = report_when(front, lambda report: bool(waits_of(report, "front/thread:loop")))
        (wait,) = waits_of(report, "front/thread:loop")
        assert targets(wait) == ["front/thread:loop"]
        look = of(look_at(front, report), "front/thread:loop")
        assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    finally:
        found[0].cancel()
        thread.join(PATIENCE_SECONDS)
        loop.close()
        read.close()
        write.close()


def test_a_running_loop_holds_up_no_call(world: FrontLoop) -> None:
    accepted = threading.Event()
    go = asyncio.Event()

    async def waits() -> None:
        accepted.set()
        await go.wait()

    world.run(b"waits", waits)
    assert accepted.wait(PATIENCE_SECONDS)
    report = report_when(world.front, lambda report: bool(report.served))
    assert waits_of(report, "front/") == []
    assert all(call.interruptible for call in report.served)
    world.loop.call_soon_threadsafe(go.set)
    assert world.calls[0].result(PATIENCE_SECONDS)


@pytest.mark.parametrize("beside", [False, True], ids=["directly", "by a thread"])
def test_a_task_that_blocks_its_own_loop_on_a_coroutine_waits_for_itself(world: FrontLoop, beside: bool) -> None:
    futures: list[Any] = []
    executor = ThreadPoolExecutor(1, "worker")

    async def answer() -> int:
        return 1

    def asks() -> object:
        future = asyncio.run_coroutine_threadsafe(answer(), world.loop)
        futures.append(future)
        return future.result()

    async def blocks() -> None:
        if beside:
            executor.submit(asks).result()
        else:
            asks()

    world.run(b"blocks", blocks)
    report = report_when(world.front, lambda report: len(waits_of(report, "front/")) == 1 + beside)
    held = {wait.waiter: targets(wait) for wait in waits_of(report, "front/")}
    worker = "front/thread:worker_0"
    assert held == ({"front/Do#1": [worker], worker: ["front/Do#1"]} if beside else {"front/Do#1": ["front/Do#1"]})
    look = look_at(world.front, report)
    assert all(one.unchanged and not one.doubt and not any(way.party is None for way in one.ways_out) for one in look.parties)
    futures[0].set_result(1)  # as no other party would
    assert world.calls[0].result(PATIENCE_SECONDS)
    executor.shutdown()


def test_a_task_that_blocks_its_own_loop_with_a_timeout_is_not_stuck(world: FrontLoop) -> None:
    begun = threading.Event()
    never: Any = None

    async def blocks() -> None:
        nonlocal never
        never = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), world.loop)
        begun.set()
        never.result(10 * PATIENCE_SECONDS)

    world.run(b"blocks", blocks)
    assert begun.wait(PATIENCE_SECONDS)
    report = report_when(world.front, lambda report: bool(report.served))
    assert waits_of(report, "front/") == []
    never.set_result(None)
    assert world.calls[0].result(PATIENCE_SECONDS)
