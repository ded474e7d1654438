"""Work that a handler leaves to library methods, to timers of Linux and of C, and to tasks that rest, with harmless twins."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.runtime.introspection.linux.own_timers import armed_timers
from tests.client.look.activity import Gate, acting, echo
from tests.client.look.test_reactivation import Ticking, served_on_loop
from tests.client.look.worlds import PATIENCE_SECONDS, serving

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def found_by(agent: Agent, *words: str) -> list[str]:
    texts = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
    return [text for text in texts if any(word in text for word in words)]


@pytest.fixture
def ticking() -> Iterator[Ticking]:
    one = Ticking()
    yield one
    one.close()


class Passed:
    """Library methods that make the application go on, by name, as they are passed to ``call_later``."""

    def __init__(self, ticking: Ticking, channel: Any) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.channel = channel
        self.loop = ticking.loop

    def start(self) -> tuple[Any, ...]:
        return (threading.Thread(target=echo, args=(b"", None)).start,)

    def submit(self) -> tuple[Any, ...]:
        return self.executor.submit, echo, b"", None

    def put(self) -> tuple[Any, ...]:
        return queue.Queue().put, 1

    def put_of_c(self) -> tuple[Any, ...]:
        kept: queue.SimpleQueue[int] = queue.SimpleQueue()
        return kept.put, 1

    def partial(self) -> tuple[Any, ...]:
        kept: queue.SimpleQueue[int] = queue.SimpleQueue()
        return (functools.partial(kept.put, 1),)

    def set_result(self) -> tuple[Any, ...]:
        future = self.loop.create_future()
        future.add_done_callback(echo)  # type: ignore[arg-type]  # never called
        return future.set_result, 1

    def create_task(self) -> tuple[Any, ...]:
        return self.loop.create_task, None

    def stub(self) -> tuple[Any, ...]:
        return self.channel.unary_unary("/s/Place"), b""

    def future(self) -> tuple[Any, ...]:
        return self.channel.unary_unary("/s/Place").future, b""


_PASSED = [name for name in vars(Passed) if not name.startswith("_")]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", _PASSED)
def test_a_library_method_that_a_handler_gives_to_a_timer_is_pending_work(
    alone: Callable[..., Agent], ticking: Ticking, name: str, before: bool
) -> None:
    front = alone("front")

    def later() -> None:
        ticking.loop.call_later(PATIENCE_SECONDS, *arguments)

    def place(request: bytes, context: Any) -> bytes:
        if request and not before:
            ticking.do(later)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        arguments = getattr(Passed(ticking, front.channel(channel, address)), name)()
        if before:  # covered by the declaration
            ticking.do(later)
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        stub(b"x")
        found = [one for one in found_by(front, "scheduled on an event loop") if "run" not in one.partition(",")[0]]
        assert len(found) == (0 if before else 1)


def test_two_timers_due_at_the_same_time_are_not_compared(alone: Callable[..., Agent], ticking: Ticking) -> None:
    """It would run the application's code: asyncio compares their arguments."""
    front, compared = alone("front"), []
    due = ticking.loop.time() + PATIENCE_SECONDS

    class Job:
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return True

        __hash__ = None  # type: ignore[assignment]

    jobs: queue.Queue[Job] = queue.Queue()

    def later() -> None:
        ticking.loop.call_at(due, jobs.put, Job())

    def place(request: bytes, context: Any) -> bytes:
        ticking.do(later)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        ticking.do(later)
        compared.clear()  # by the loop itself, which sorts its timers
        stub(b"")
        compared.clear()
        assert found_by(front, "put, scheduled on an event loop")
        assert not compared


async def test_the_timers_of_sleeping_tasks_are_not_pending_work_of_their_own(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    sleeps = asyncio.create_task(asyncio.sleep(PATIENCE_SECONDS))

    async def place(request: bytes, context: Any) -> bytes:
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        assert await asyncio.to_thread(found_by, front, "scheduled") == []
    sleeps.cancel()


@pytest.mark.parametrize("callback", [queue.Queue().put, queue.SimpleQueue().put])
def test_a_librarys_done_callback_of_an_item_is_pending_work(alone: Callable[..., Agent], gate: Gate, callback: Any) -> None:
    front, executor = alone("front"), ThreadPoolExecutor(1)
    executor.submit(int).result()

    def place(request: bytes, context: Any) -> bytes:
        if request:
            executor.submit(gate.go.wait, PATIENCE_SECONDS).add_done_callback(callback)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert not found_by(front, "done callback")
        stub(b"x")
        end = time.monotonic() + PATIENCE_SECONDS
        while not found_by(front, "done callback of an executor item"):  # once the item has begun
            assert time.monotonic() < end
    gate.go.set()
    executor.shutdown()


def test_a_call_queued_in_an_executor_is_pending_work(alone: Callable[..., Agent], gate: Gate) -> None:
    front, executor = alone("front"), ThreadPoolExecutor(1)
    executor.submit(int).result()

    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = front.channel(channel, address).unary_unary("/s/Place")
        stub(b"")
        executor.submit(gate.go.wait, PATIENCE_SECONDS)
        executor.submit(stub, b"")
        end = time.monotonic() + PATIENCE_SECONDS
        while not found_by(front, "an item queued for an executor"):  # once the first item has begun
            assert time.monotonic() < end
        gate.go.set()
        executor.shutdown()


@linux
@pytest.mark.parametrize("before", [False, True])
def test_a_timer_descriptor_that_a_handler_arms_is_pending_work(alone: Callable[..., Agent], before: bool) -> None:
    front, libc = alone("front"), ctypes.CDLL(None)
    timer = libc.timerfd_create(1, 0)

    def arm(seconds: int) -> None:
        libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 0, seconds, 0), None)

    def place(request: bytes, context: Any) -> bytes:
        if request:
            arm(60)
        return request

    try:
        with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
            stub: Any = channel.unary_unary("/s/Place")
            if before:
                arm(90)
            stub(b"")
            assert not found_by(front, "timerfd")
            stub(b"x")
            assert 50 < armed_timers()[timer] <= 60
            assert bool(found_by(front, f"the timer of descriptor {timer} (timerfd)")) is not before
            arm(0)
            assert not found_by(front, "timerfd")
    finally:
        os.close(timer)


@linux
@pytest.mark.parametrize("given", [True, False])
def test_a_function_given_to_c_is_pending_work_if_a_thread_of_c_was_started_since(
    alone: Callable[..., Agent], given: bool
) -> None:
    front, libc, thread = alone("front"), ctypes.CDLL(None), ctypes.c_ulong()
    kept = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_short)(lambda number: number) if given else None

    def place(request: bytes, context: Any) -> bytes:
        if request:
            libc.pthread_create(ctypes.byref(thread), None, libc.sleep, ctypes.c_void_p(3))
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        end = time.monotonic() + PATIENCE_SECONDS
        while found := found_by(front, "code in C"):  # a thread of Python's that begins, or ends, looks like one of C's
            assert time.monotonic() < end, found
        stub(b"x")
        assert bool(found_by(front, "which code in C may call: its thread")) is given
    del kept
    libc.pthread_join(thread, None)


@pytest.mark.parametrize("rests", [True, False])
async def test_a_task_left_behind_by_a_handler_is_idle_while_it_rests(alone: Callable[..., Agent], rests: bool) -> None:
    """A worker that the first request has started, and that then waits for the next job."""
    front, kept = alone("front"), set()
    jobs: asyncio.Queue[None] = asyncio.Queue()
    begun = asyncio.Event()

    async def worker() -> None:
        begun.set()
        await (jobs.get() if rests else asyncio.sleep(PATIENCE_SECONDS))

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            kept.add(asyncio.create_task(worker(), name="worker"))
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        await stub(b"x")
        await begun.wait()
        found = await asyncio.to_thread(acting, front)
        assert [text.partition("/Place")[0] for text in found] == ([] if rests else ["task worker, left behind by front"])
        kept.pop().cancel()


async def test_a_task_left_behind_that_a_peer_may_wake_is_at_work(alone: Callable[..., Agent]) -> None:
    """The handler has asked a peer that is no member, over a protocol of the application's own."""
    front, kept = alone("front"), set()
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    class Answers(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            answers.put_nowait(data)

    async def worker() -> None:
        await answers.get()

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            kept.add(asyncio.create_task(worker(), name="worker"))
        return request

    here, there = socket.socketpair()
    async with served_on_loop(front, place) as stub:
        transport, _ = await asyncio.get_running_loop().create_connection(Answers, sock=here)
        await stub(b"")
        await stub(b"x")
        assert await asyncio.to_thread(found_by, front, "task worker, left behind by front")
        kept.pop().cancel()
        transport.close()
        there.close()


@pytest.mark.parametrize("finished", [True, False])
def test_the_main_thread_counts_in_an_exit_handler(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    front, texts = alone("front"), []
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("the tests run in another thread")
    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        if finished:
            monkeypatch.setattr(threading.main_thread(), "is_alive", bool)
        looks = threading.Thread(target=lambda: texts.extend(found_by(front, "exit handler")))
        looks.start()
        looks.join()
        monkeypatch.undo()
    assert bool(texts) is finished


def test_the_threads_of_a_connection_pool_that_a_handler_opens_are_idle(alone: Callable[..., Agent]) -> None:
    pools, front = pytest.importorskip("psycopg_pool"), alone("front")
    opened: list[Any] = []

    def place(request: bytes, context: Any) -> bytes:
        if request:
            opened.append(pools.ConnectionPool("host=127.0.0.1 port=1", min_size=1, name="kept"))
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        stub(b"x")
        assert not found_by(front, "kept")
    opened[0].close()


@pytest.mark.parametrize("ends", [True, False])
async def test_a_task_of_a_connection_pool_is_idle_unless_its_end_calls_the_application(
    alone: Callable[..., Agent], ends: bool
) -> None:
    pools, front, kept = pytest.importorskip("psycopg_pool.sched_async"), alone("front"), set()

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            scheduler = pools.AsyncScheduler()
            await scheduler.enter(PATIENCE_SECONDS, None)
            task = asyncio.create_task(scheduler.run(), name="kept")
            kept.add(task)
            if ends:
                task.add_done_callback(lambda _: echo(b"", None))
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        await stub(b"x")
        await asyncio.sleep(0.01)
        assert bool(await asyncio.to_thread(found_by, front, "task kept")) is ends
        kept.pop().cancel()


async def test_a_timer_by_which_a_pool_closes_idle_connections_is_no_work(alone: Callable[..., Agent]) -> None:
    pools, front, kept = pytest.importorskip("asyncpg.pool"), alone("front"), set()
    holder = object.__new__(pools.PoolConnectionHolder)

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            method = holder._deactivate_inactive_connection
            kept.add(asyncio.get_running_loop().call_later(PATIENCE_SECONDS, method))
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        await stub(b"x")
        assert not await asyncio.to_thread(found_by, front, "scheduled")
        kept.pop().cancel()
