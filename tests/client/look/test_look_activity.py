"""Unrecorded activity found by the look for termination, family by family, each with its harmless twin."""

from __future__ import annotations

import asyncio
import queue
import sched
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.runtime.compat import is_polled_queue, standing_threads
from tests.client.look.activity import Gate, acting, echo
from tests.client.look.worlds import PATIENCE_SECONDS, LoopWorld, serving, settle

FAR_SECONDS = 600.0


def test_an_ordinary_process_at_rest_has_nothing_that_acts(alone: Callable[..., Agent], gate: Gate) -> None:
    front, back = alone("front"), alone("back")
    executor = ThreadPoolExecutor(2)
    waiter = threading.Thread(target=gate.wait)
    waiter.start()
    gate.is_reached()
    with serving(back, Get=echo) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        assert get(b"x") == get.future(b"x").result() == b"x"
        assert executor.submit(get, b"y").result() == b"y"
        assert acting(front) == acting(back) == ()
    executor.shutdown()
    gate.go.set()
    waiter.join()


def test_a_running_done_callback_is_active(alone: Callable[..., Agent], gate: Gate) -> None:
    front, back = alone("front"), alone("back")
    added = threading.Event()  # a callback added to a finished call runs at once, in this thread

    def replies_then(request: bytes, context: Any) -> bytes:
        assert added.wait(PATIENCE_SECONDS)
        return request

    with serving(back, Get=replies_then) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        get.future(b"").add_done_callback(gate.work)
        added.set()
        gate.is_reached()
        (text,) = acting(front)
        assert "in a gRPC callback" in text
        assert "Gate.work" in text
        gate.go.set()


def test_the_callbacks_of_a_served_call_are_active(alone: Callable[..., Agent], gate: Gate) -> None:
    front = alone("front")

    def place(request: bytes, context: Any) -> bytes:
        context.add_callback(gate.work)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        gate.is_reached()
        assert any("in a gRPC callback" in text for text in acting(front))
        gate.go.set()


@pytest.mark.parametrize("how", ["thread", "timer", "executor"])
def test_a_thread_that_a_handler_left_running_is_active(alone: Callable[..., Agent], gate: Gate, how: str) -> None:
    front = alone("front")
    executor = ThreadPoolExecutor(1)

    def place(request: bytes, context: Any) -> bytes:
        if how == "thread":
            threading.Thread(target=gate.work, name="left").start()
        elif how == "timer":
            threading.Timer(0.0, gate.work).start()
        else:
            executor.submit(gate.work)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        assert acting(front) == ()
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        gate.is_reached()
        (text,) = acting(front)
        assert ("executor" if how == "executor" else "started after") in text
        gate.go.set()
    executor.shutdown()


class Reader:
    """A thread started before the first call that reads and processes input; ``turn`` feeds it."""

    def __init__(self, kind: str, gate: Gate) -> None:
        self.gate = gate
        self.items: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.near, self.far = socket.socketpair()
        self.scheduler = sched.scheduler()
        self.thread = threading.Thread(target=getattr(self, kind), name=kind, daemon=True)
        self.thread.start()

    def of_queue(self) -> None:
        while self.items.get():
            self.gate.work()

    def of_socket(self) -> None:
        while self.near.recv(1):
            self.gate.work()

    def of_schedule(self) -> None:
        while not self.gate.go.wait(0.01):
            self.scheduler.run()

    def turn(self) -> None:
        self.items.put(b"x")
        self.far.send(b"x")
        self.scheduler.enter(1.0, 1, echo, (b"", None))
        if self.thread.name == "of_schedule":
            self.gate.reached.release()

    def close(self) -> None:
        self.gate.go.set()
        self.items.put(b"")
        self.far.close()
        self.thread.join()
        self.near.close()


@pytest.mark.parametrize("kind", ["of_queue", "of_socket", "of_schedule"])
def test_an_earlier_reader_thread_that_got_an_item_is_active(alone: Callable[..., Agent], gate: Gate, kind: str) -> None:
    front, reader = alone("front"), Reader(kind, gate)
    time.sleep(0.1)

    def place(request: bytes, context: Any) -> bytes:
        if request:
            reader.turn()
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert acting(front) == ()
        stub(b"x")
        gate.is_reached()
        time.sleep(0.1)
        (text,) = acting(front)
        reader.close()
        assert f"thread {kind}, " in text


def test_a_thread_started_before_the_first_call_is_covered_by_the_declaration(alone: Callable[..., Agent], gate: Gate) -> None:
    front = alone("front")
    threading.Thread(target=gate.work).start()
    gate.is_reached()
    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert acting(front) == ()
        gate.go.set()


def test_an_earlier_thread_that_a_message_woke_is_active(alone: Callable[..., Agent], gate: Gate) -> None:
    front, orders = alone("front"), queue.Queue[bytes]()

    def gathers() -> None:
        orders.get()
        gate.work()

    def place(request: bytes, context: Any) -> bytes:
        orders.put(request)
        return request

    with serving(front, Ping=echo, Place=place) as address, grpc.insecure_channel(address) as channel:
        worker = threading.Thread(target=gathers, name="worker")
        worker.start()
        while not is_polled_queue(standing_threads().get(worker.ident or 0, ())):
            worker.join(0.001)
        ping: Any = channel.unary_unary("/s/Ping")
        ping(b"")
        assert acting(front) == ()
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"x")
        gate.is_reached()
        (text,) = acting(front)
        assert "thread worker, resumed after" in text
        gate.go.set()
        worker.join()


async def test_an_earlier_task_that_a_message_woke_is_active(alone: Callable[..., Agent]) -> None:
    front, orders = alone("front"), asyncio.Queue[bytes]()
    woken = asyncio.Event()

    async def consumes() -> None:
        while True:
            await orders.get()
            woken.set()
            await asyncio.sleep(PATIENCE_SECONDS)

    async def ticks() -> None:
        while True:
            await asyncio.sleep(PATIENCE_SECONDS)

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            orders.put_nowait(request)
        return request

    tasks = [asyncio.create_task(one(), name=one.__name__) for one in (consumes, ticks)]
    server = grpc.aio.server(interceptors=[front.aio_server_interceptor()])
    methods: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(place)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        await stub(b"")
        assert await asyncio.to_thread(acting, front) == ()
        await stub(b"x")
        await woken.wait()
        (text,) = await asyncio.to_thread(acting, front)
        assert "task consumes, resumed since" in text
    for task in tasks:
        task.cancel()
    await server.stop(0)


@pytest.mark.parametrize("how", ["timer", "scheduler"])
def test_a_timer_set_by_a_handler_is_pending_work(alone: Callable[..., Agent], how: str) -> None:
    front = alone("front")
    plan = sched.scheduler()
    timers: list[threading.Thread] = []

    def place(request: bytes, context: Any) -> bytes:
        if how == "timer":
            timers.append(threading.Timer(PATIENCE_SECONDS, echo))
        else:
            plan.enter(PATIENCE_SECONDS, 1, echo)
            timers.append(threading.Thread(target=plan.run, daemon=True))
        timers[0].start()
        return request

    def unaccounted() -> tuple[str, ...]:
        return front.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        assert not any("a timer started" in text for text in unaccounted())
        stub(b"")
        assert [text for text in unaccounted() if f"thread {timers[0].name}, a timer started after" in text]
        if isinstance(timers[0], threading.Timer):
            timers[0].cancel()


def test_a_thread_started_before_idle_is_covered_by_it(alone: Callable[..., Agent], gate: Gate) -> None:
    front = alone("front")
    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        threading.Thread(target=gate.work).start()
        gate.is_reached()
        assert any("started after" in text for text in acting(front))
        front.idle()
        assert acting(front) == ()
        gate.go.set()


async def test_tasks_and_timers_left_by_a_handler_are_active(alone: Callable[..., Agent]) -> None:
    world = LoopWorld(alone("front"), alone("back"))
    await world.start()
    go = asyncio.Event()
    seen: list[tuple[str, ...]] = []

    async def works() -> None:
        await asyncio.wait_for(go.wait(), PATIENCE_SECONDS)

    async def leaves_task(world: LoopWorld) -> None:
        world.left = asyncio.create_task(works(), name="works")  # type: ignore[attr-defined]

    async def leaves_timer(world: LoopWorld) -> None:
        world.timer = asyncio.get_running_loop().call_later(60, go.set)  # type: ignore[attr-defined]

    async def leaves_nothing(world: LoopWorld) -> None:
        await asyncio.create_task(asyncio.sleep(0))

    for body in (leaves_nothing, leaves_task, leaves_timer):
        world.body = body
        go.clear()
        assert await world.outside.unary_unary("/t.T/Do")(b"") == b"done"
        seen.append(await asyncio.to_thread(acting, world.front))
        go.set()
        await asyncio.sleep(0)
    assert seen[0] == ()
    assert "task works, left behind by front/Do#" in seen[1][0]
    assert "scheduled by front/Do#" in seen[2][0]
    world.timer.cancel()  # type: ignore[attr-defined]
    await world.stop()


def test_the_cleanup_of_a_generator_after_its_caller_left_is_active(alone: Callable[..., Agent], gate: Gate) -> None:
    front = alone("front")

    def items(request: bytes, context: Any) -> Iterator[bytes]:
        try:
            yield b"1"
            while context.is_active():
                yield b"2"
        finally:
            gate.work()

    with serving(front, Items=("unary_stream", items)) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_stream("/s/Items")
        call = stub(b"")
        next(call)
        call.cancel()
        gate.is_reached()
        served = len(front.live.recorder.calls_served)
        assert served or acting(front)  # it is still served, or else unaccounted
        gate.go.set()


async def _waits_for_a_child() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; sys.stdin.read()", stdin=asyncio.subprocess.PIPE
    )
    try:
        await child.wait()
    finally:
        child.terminate()


async def _waits_for_a_time() -> None:
    async with asyncio.timeout(FAR_SECONDS):
        await asyncio.Event().wait()


async def _waits_for_others_for_a_time() -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=FAR_SECONDS)


async def _waits_for_what_a_timer_completes() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(FAR_SECONDS, future.set_result, None)
    await future


async def _waits_for_others() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("waits", "acts"),
    [
        (_waits_for_a_child, True),
        (_waits_for_a_time, True),
        (_waits_for_others_for_a_time, True),
        (_waits_for_what_a_timer_completes, True),
        (_waits_for_others, False),
    ],
)
def test_a_task_started_later_is_active_if_it_ends_its_own_wait(
    alone: Callable[..., Agent], waits: Callable[[], Coroutine[Any, Any, None]], acts: bool
) -> None:
    front = alone("front")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert acting(front) == ()
        begun = asyncio.run_coroutine_threadsafe(waits(), loop)
        asyncio.run_coroutine_threadsafe(settle(), loop).result(PATIENCE_SECONDS)
        until = time.monotonic() + PATIENCE_SECONDS
        while not (told := any("task " in text for text in acting(front))) and acts and time.monotonic() < until:
            time.sleep(0.05)
        assert told is acts
        begun.cancel()
    loop.call_soon_threadsafe(_end, loop)
    thread.join()
    loop.close()


def _end(loop: asyncio.AbstractEventLoop) -> None:
    loop.create_task(_stop_after(asyncio.all_tasks(loop)))


async def _stop_after(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels until all have ended: before Python 3.12, ``asyncio.wait_for`` loses a cancellation that meets its time-out."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=1.0)
    asyncio.get_running_loop().stop()
