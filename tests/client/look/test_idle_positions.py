"""The threads and tasks that the look for termination reports: those away from where they stood, and new ones not at rest."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from tests.client.look.activity import Gate, acting, echo
from tests.client.look.worlds import PATIENCE_SECONDS, serving

POLL_SECONDS = 0.2
FAR_SECONDS = 600.0


class Consumer:
    """A thread that works on what it is given, one method for each way to wait for it."""

    def __init__(self, kind: str, gate: Gate) -> None:
        self.gate = gate
        self.kind = kind
        self.items: queue.Queue[bytes] = queue.Queue()
        self.condition = threading.Condition()
        self.given: list[bytes] = []
        self.event = threading.Event()
        self.lock = threading.Lock()
        self.lock.acquire()
        self.reading, self.writing = os.pipe()
        self.thread = threading.Thread(target=getattr(self, kind), name=kind, daemon=True)

    def at_queue(self) -> None:
        while self.items.get():
            self.gate.work()

    def at_polled_queue(self) -> None:
        while True:
            try:
                item = self.items.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if not item:
                break
            self.gate.work()

    def at_polled_condition(self) -> None:
        while True:
            with self.condition:
                while not self.given:
                    self.condition.wait(POLL_SECONDS)
                item = self.given.pop(0)
            if not item:
                break
            self.gate.work()

    def at_polled_event(self) -> None:
        while True:
            if self.event.wait(POLL_SECONDS):
                self.event.clear()
                if not self.given.pop(0):
                    break
                self.gate.work()

    def at_lock(self) -> None:
        while self.lock.acquire():
            if not self.given.pop(0):
                break
            self.gate.work()

    def at_pipe(self) -> None:
        while os.read(self.reading, 1) == b"x":
            self.gate.work()

    def at_lines(self) -> None:
        with os.fdopen(os.dup(self.reading)) as lines:
            for line in lines:
                if line == ".\n":
                    break
                self.gate.work()

    def asleep(self) -> None:
        while True:
            time.sleep(POLL_SECONDS)
            if self.given:
                if not self.given.pop(0):
                    break
                self.gate.work()

    def give(self, item: bytes = b"x") -> None:
        with self.condition:
            self.given.append(item)
            self.condition.notify()
        self.event.set()
        if self.kind == "at_lock":
            self.lock.release()
        self.items.put(item)
        os.write(self.writing, b"%s\n" % (item or b".") if self.kind == "at_lines" else item or b".")

    def close(self) -> None:
        self.gate.go.set()
        self.give(b"")
        if self.thread.ident is not None:
            self.thread.join(PATIENCE_SECONDS)
        os.close(self.reading)
        os.close(self.writing)


KINDS = [name for name in vars(Consumer) if name.startswith(("at_", "asleep"))]


@pytest.fixture
def consumers(gate: Gate) -> Iterator[Callable[[str], Consumer]]:
    made: list[Consumer] = []

    def make(kind: str) -> Consumer:
        made.append(Consumer(kind, gate))
        return made[-1]

    yield make
    for one in made:
        one.close()


@contextmanager
def called_once(agent: Agent) -> Iterator[Callable[[bytes], bytes]]:
    """A stub of ``agent``'s server, whose first call was made."""
    with serving(agent, Do=echo) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        yield do


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return met


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_thread_is_at_work_from_its_item_until_it_waits_again(
    alone: Callable[..., Agent], gate: Gate, consumers: Callable[[str], Consumer], kind: str
) -> None:
    front, consumer = alone("front"), consumers(kind)
    consumer.thread.start()
    time.sleep(0.1)
    with called_once(front):
        assert acting(front) == ()
        consumer.give()
        gate.is_reached()
        (text,) = acting(front)
        assert f"thread {kind}, resumed after" in text
        gate.go.set()
        assert wait_for(lambda: acting(front) == ())
        consumer.give()
        gate.is_reached()
        assert wait_for(lambda: acting(front) == ())


def test_a_consumer_thread_still_starting_at_the_first_call_is_at_work_until_it_waits(
    alone: Callable[..., Agent], gate: Gate
) -> None:
    front, items, begun = alone("front"), queue.Queue[bytes](), threading.Event()

    def loads_and_consumes() -> None:
        while not begun.is_set():
            sum(range(1000))
        while items.get():
            gate.work()

    thread = threading.Thread(target=loads_and_consumes, name="starting", daemon=True)
    thread.start()
    with called_once(front):
        begun.set()
        assert wait_for(lambda: acting(front) == ())
        items.put(b"x")
        gate.is_reached()
        (text,) = acting(front)
        assert "thread starting, resumed after" in text
        gate.go.set()
        items.put(b"")
        thread.join()


def test_a_scheduler_thread_that_begins_to_wait_with_a_timeout_is_at_work(alone: Callable[..., Agent]) -> None:
    front, woken, seconds = alone("front"), threading.Event(), list[float | None]([None])

    def schedules() -> None:
        while seconds[0] != 0:
            woken.wait(seconds[0])
            woken.clear()

    thread = threading.Thread(target=schedules, name="scheduler", daemon=True)
    thread.start()
    time.sleep(0.1)
    with called_once(front):
        assert acting(front) == ()
        seconds[0] = FAR_SECONDS
        woken.set()
        assert wait_for(lambda: any("thread scheduler, resumed after" in text for text in acting(front)))
        seconds[0] = 0
        woken.set()
        thread.join()


@pytest.mark.parametrize("how", ["selector", "select"])
def test_a_reactor_thread_that_begins_to_wait_with_a_timeout_is_at_work(alone: Callable[..., Agent], how: str) -> None:
    """It has been given a timer; between its timers it waits for its sockets alone."""
    front, seconds = alone("front"), list[float | None]([None])
    reading, writing = socket.socketpair()
    selector = selectors.DefaultSelector()
    selector.register(reading, selectors.EVENT_READ)

    def reacts() -> None:
        while seconds[0] != 0:
            if how == "selector":
                selector.select(seconds[0])
            else:
                select.select([reading], [], [], seconds[0])
            reading.recv(1)

    thread = threading.Thread(target=reacts, name="reactor", daemon=True)
    thread.start()
    time.sleep(0.1)
    with selector, reading, writing, called_once(front):
        assert acting(front) == ()
        seconds[0] = FAR_SECONDS
        writing.send(b"x")
        assert wait_for(lambda: any("thread reactor, resumed after" in text for text in acting(front)))
        seconds[0] = None
        writing.send(b"x")
        assert wait_for(lambda: acting(front) == ())
        seconds[0] = 0
        writing.send(b"x")
        thread.join()


def test_a_consumer_loop_in_an_executor_is_at_work_only_while_it_has_an_item(
    alone: Callable[..., Agent], gate: Gate, consumers: Callable[[str], Consumer]
) -> None:
    front, consumer = alone("front"), consumers("at_queue")
    executor = ThreadPoolExecutor(1)
    executor.submit(consumer.at_queue)
    time.sleep(0.1)
    with called_once(front):
        assert acting(front) == ()
        consumer.give()
        gate.is_reached()
        (text,) = acting(front)
        assert "running an executor item" in text
        gate.go.set()
        assert wait_for(lambda: acting(front) == ())


def test_a_thread_that_declares_its_own_work_is_covered_wherever_it_is(alone: Callable[..., Agent], gate: Gate) -> None:
    """A batch in progress at the first call, and the pause after it, which is another place."""
    front, ended = alone("front"), threading.Event()

    def batches() -> None:
        with front.busy():
            gate.work()
        ended.wait(FAR_SECONDS)

    thread = threading.Thread(target=batches, name="batches", daemon=True)
    thread.start()
    gate.is_reached()
    with called_once(front):
        gate.go.set()
        time.sleep(0.1)
        assert acting(front) == ()
        ended.set()
        thread.join()


def test_a_thread_that_called_idle_and_then_consumes_is_at_work_from_its_item(
    alone: Callable[..., Agent], gate: Gate, consumers: Callable[[str], Consumer]
) -> None:
    front, consumer = alone("front"), consumers("at_queue")

    def consumes() -> None:
        front.idle()
        consumer.at_queue()

    with called_once(front):
        thread = threading.Thread(target=consumes, name="consumes", daemon=True)
        thread.start()
        time.sleep(0.1)
        assert acting(front) == ()
        consumer.give()
        gate.is_reached()
        (text,) = acting(front)
        assert "thread consumes, resumed after" in text
        gate.go.set()
        consumer.give(b"")
        thread.join()


def _of_result(executor: ThreadPoolExecutor, go: threading.Event) -> None:
    executor.submit(go.wait, PATIENCE_SECONDS).result()


def _of_several(executor: ThreadPoolExecutor, go: threading.Event) -> None:
    wait([executor.submit(go.wait, PATIENCE_SECONDS)])


def _of_thread(_: ThreadPoolExecutor, go: threading.Event) -> None:
    thread = threading.Thread(target=go.wait, args=(PATIENCE_SECONDS,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("waits", [_of_result, _of_several, _of_thread])
def test_a_thread_waiting_for_a_result_or_a_working_thread_is_at_work(
    alone: Callable[..., Agent], gate: Gate, waits: Callable[..., None]
) -> None:
    front = alone("front")
    with ThreadPoolExecutor(1) as executor, called_once(front):
        thread = threading.Thread(target=waits, args=(executor, gate.go), name="waits")
        thread.start()
        time.sleep(0.1)
        (text,) = acting(front)
        assert "thread waits, started after" in text
        gate.go.set()
        thread.join()


def test_a_thread_joining_a_resting_thread_is_not_at_work(alone: Callable[..., Agent], gate: Gate) -> None:
    def keeps() -> None:
        worker.join()

    front = alone("front")
    worker, keeper = threading.Thread(target=gate.wait), threading.Thread(target=keeps)
    with called_once(front):
        worker.start()
        keeper.start()
        gate.is_reached()
        assert wait_for(lambda: acting(front) == ())
        gate.go.set()
        keeper.join()


class Dispatcher:
    """An event loop in a thread, with a task from before the first call that starts a task for each job."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.jobs: asyncio.Queue[Coroutine[Any, Any, None] | None] = asyncio.Queue()
        self.begun: list[asyncio.Task[None]] = []
        self.ended = asyncio.run_coroutine_threadsafe(self._dispatch(), self.loop)

    async def _dispatch(self) -> None:
        while (job := await self.jobs.get()) is not None:
            self.begun.append(asyncio.create_task(job, name="job"))
        for task in self.begun:
            task.cancel()
        await asyncio.gather(*self.begun, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    def give(self, job: Coroutine[Any, Any, None] | None) -> None:
        self.loop.call_soon_threadsafe(self.jobs.put_nowait, job)

    def close(self) -> None:
        self.give(None)
        self.ended.result(PATIENCE_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher()
    yield dispatcher
    dispatcher.close()


async def _gathers_sleeps(_: Gate) -> None:
    await asyncio.gather(asyncio.sleep(FAR_SECONDS), asyncio.sleep(FAR_SECONDS))


async def _waits_for_a_thread(gate: Gate) -> None:
    await asyncio.to_thread(gate.go.wait, PATIENCE_SECONDS)


async def _waits_for_a_peer(gate: Gate) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await reader.read()
        finally:
            writer.close()


async def _waits_for_an_event_that_a_timer_sets(_: Gate) -> None:
    event = asyncio.Event()
    timer = asyncio.get_running_loop().call_later(FAR_SECONDS, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def _gathers_tasks_that_rest(_: Gate) -> None:
    await asyncio.gather(asyncio.Event().wait(), asyncio.Queue[int]().get(), asyncio.create_task(asyncio.Event().wait()))


@pytest.mark.parametrize(
    ("job", "acts"),
    [
        (_gathers_sleeps, True),
        (_waits_for_a_thread, True),
        (_waits_for_a_peer, True),
        (_waits_for_an_event_that_a_timer_sets, True),
        (_gathers_tasks_that_rest, False),
    ],
)
def test_a_task_started_by_an_earlier_task_is_at_work_unless_it_rests(
    alone: Callable[..., Agent], gate: Gate, dispatcher: Dispatcher, job: Callable[[Gate], Any], acts: bool
) -> None:
    def found() -> bool:
        texts = front.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
        return any("task job" in text or "Event.set" in text for text in texts)

    front = alone("front")
    with called_once(front):
        assert acting(front) == ()
        dispatcher.give(job(gate))
        assert wait_for(lambda: bool(dispatcher.begun))
        time.sleep(0.1)
        assert wait_for(lambda: found() is acts)
    gate.go.set()


def test_a_consumer_task_is_at_work_from_its_item_until_it_waits_again(alone: Callable[..., Agent]) -> None:
    front, loop = alone("front"), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    items: asyncio.Queue[asyncio.Event | None] = asyncio.Queue()

    async def consumes() -> None:
        while (event := await items.get()) is not None:
            await asyncio.wait_for(event.wait(), FAR_SECONDS)

    event = asyncio.Event()
    ended = asyncio.run_coroutine_threadsafe(consumes(), loop)
    time.sleep(0.1)
    with called_once(front):
        assert acting(front) == ()
        loop.call_soon_threadsafe(items.put_nowait, event)
        assert wait_for(lambda: any("resumed since" in text for text in acting(front)))
        loop.call_soon_threadsafe(event.set)
        assert wait_for(lambda: acting(front) == ())
        loop.call_soon_threadsafe(items.put_nowait, None)
        ended.result(PATIENCE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
