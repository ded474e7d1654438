"""A worker that ``multiprocessing`` has started does its work on its main thread: at work from an item until the next wait."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from tests.client.look.activity import acting
from tests.client.look.worlds import PATIENCE_SECONDS, serving

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls")
SPAWN: Any = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def _found_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker imports this module by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


def answers(request: bytes, context: Any) -> bytes:
    return request


def look_at_main(agent: Agent, looks: Any, asked: Any) -> None:
    """In the worker, whenever asked: put what the look for termination says of the main thread."""
    looker = agent.looker()
    while asked.get():
        texts = looker.look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
        looks.put([text for text in texts if "MainThread" in text])


def consumes(items: Any, looks: Any, asked: Any, go: Any, address: str) -> None:
    """The worker: each item is a call, some work, and another call."""
    agent = Agent(service="worker", instance="worker", reactive=True, enabled=True)
    Thread(target=look_at_main, args=(agent, looks, asked), daemon=True).start()
    with grpc.insecure_channel(address) as channel:
        call: Any = agent.channel(channel, address).unary_unary("/s/Do")
        while items.get():
            call(b"begin")
            go.wait(PATIENCE_SECONDS)
            call(b"end")


def serves(items: Any, looks: Any, asked: Any, go: Any, address: str) -> None:
    """The worker is a server, which registers itself before it serves."""
    agent = Agent(service="worker", instance="worker", reactive=True, enabled=True)
    with grpc.insecure_channel(address) as channel:
        register: Any = agent.channel(channel, address).unary_unary("/s/Do")
        register(b"here I am")
    server = grpc.server(agent.pool(ThreadPoolExecutor(1)), interceptors=[agent.server_interceptor()])
    server.start()
    go.set()
    Thread(target=look_at_main, args=(agent, looks, asked), daemon=True).start()
    server.wait_for_termination()


class Worker:
    """The process and its queues."""

    def __init__(self, runs: Callable[..., None], address: str) -> None:
        self.items, self.looks, self.asked, self.go = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Queue(), SPAWN.Event()
        arguments = (self.items, self.looks, self.asked, self.go, address)
        self.process = SPAWN.Process(target=runs, args=arguments, daemon=True)
        self.process.start()

    def look(self) -> list[str]:
        self.asked.put(True)
        found: list[str] = self.looks.get(timeout=PATIENCE_SECONDS)
        return found

    def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition(found := self.look()) and time.monotonic() < end:
            time.sleep(0.02)
        return found


@contextmanager
def worker(runs: Callable[..., None], address: str) -> Iterator[Worker]:
    one = Worker(runs, address)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.join()


def test_the_main_thread_of_a_worker_is_at_work_from_its_item_until_it_waits_again(alone: Callable[..., Agent]) -> None:
    begun, ended = Event(), Event()

    def do(request: bytes, context: Any) -> bytes:
        (begun if request == b"begin" else ended).set()
        return request

    with serving(alone("back"), Do=do) as address, worker(consumes, address) as one:
        one.items.put(b"x")
        assert begun.wait(PATIENCE_SECONDS)
        (text,) = one.until(bool)
        assert "thread MainThread, resumed after" in text
        one.go.set()
        assert ended.wait(PATIENCE_SECONDS)
        assert one.until(lambda found: not found) == []


def test_the_main_thread_of_a_worker_that_only_keeps_its_server_alive_is_not_at_work(alone: Callable[..., Agent]) -> None:
    with serving(alone("back"), Do=answers) as address, worker(serves, address) as one:
        assert one.go.wait(PATIENCE_SECONDS)
        assert one.until(lambda found: not found) == []


@pytest.mark.parametrize("queue", ["Queue", "SimpleQueue"])
def test_threads_started_later_that_read_an_empty_queue_rest(alone: Callable[..., Agent], queue: str) -> None:
    """The first waits for a message, the second for its turn."""
    front, items = alone("front"), getattr(SPAWN, queue)()

    def reads() -> None:
        while items.get():
            time.sleep(PATIENCE_SECONDS)

    def found() -> list[str]:
        return [text for text in acting(front) if "reader" in text]

    readers = [Thread(target=reads, name=f"reader-{number}", daemon=True) for number in range(2)]
    with serving(front, Do=answers) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        for reader in readers:
            reader.start()
        end = time.monotonic() + PATIENCE_SECONDS
        while found() and time.monotonic() < end:
            time.sleep(0.02)
        assert found() == []
        items.put(b"x")
        while not found() and time.monotonic() < end:
            time.sleep(0.02)
        (text,) = found()
        assert "started after" in text
    items.put(b"")
