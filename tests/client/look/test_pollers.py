"""A thread or task that sleeps, looks for work and calls: at work from its first own call on, unless it declares its work."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.activity import acting, echo
from tests.client.look.worlds import PATIENCE_SECONDS, serving

PAUSE_SECONDS = 0.02


class Poller:
    """Takes items that a handler leaves, and sends each; ``kind``: how it waits for the next."""

    def __init__(self, kind: str, agent: Agent) -> None:
        self.kind, self.agent = kind, agent
        self.outbox: list[bytes] = []
        self.items: queue.Queue[bytes] = queue.Queue()
        self.condition, self.stop = threading.Condition(), threading.Event()
        self.send: Callable[[bytes], Any] = len
        self.sent = threading.Semaphore(0)

    def give(self) -> None:
        with self.condition:
            self.outbox.append(b"x")
            self.condition.notify()
        self.items.put(b"x")

    def run(self) -> None:
        while not self.stop.is_set():
            getattr(self, self.kind)()
            if self.outbox:
                item = self.outbox.pop()
                if self.kind == "declares":
                    with self.agent.busy():
                        self.send(item)
                else:
                    self.send(item)
                self.sent.release()

    async def arun(self, send: Callable[[bytes], Any]) -> None:
        event = asyncio.Event()
        while not self.stop.is_set():
            if self.kind == "sleeps":
                await asyncio.sleep(PAUSE_SECONDS)
            elif self.kind == "waits_for_stop":
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(event.wait(), PAUSE_SECONDS)
            if self.outbox:
                await send(self.outbox.pop())
                self.sent.release()

    def sleeps(self) -> None:
        time.sleep(PAUSE_SECONDS)

    def declares(self) -> None:
        with self.agent.busy():
            pass
        time.sleep(PAUSE_SECONDS)

    def waits_for_stop(self) -> None:
        self.stop.wait(PAUSE_SECONDS)

    def polls_queue(self) -> None:
        with suppress(queue.Empty):
            self.items.get(timeout=PAUSE_SECONDS)

    def polls_condition(self) -> None:
        with self.condition:
            self.condition.wait(PAUSE_SECONDS)


@pytest.fixture
def pollers(alone: Callable[..., Agent]) -> Iterator[Callable[[str], Poller]]:
    made: list[Poller] = []

    def make(kind: str) -> Poller:
        made.append(Poller(kind, alone("front")))
        return made[-1]

    yield make
    for one in made:
        one.stop.set()


def texts_of(agent: Agent, name: str) -> list[str]:
    return [text for text in acting(agent) if name in text]


def says(agent: Agent, text: str) -> None:
    """Wait until a look says this of the poller; at another moment it may be awake."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not texts_of(agent, text):
        assert time.monotonic() < end
        time.sleep(PAUSE_SECONDS / 3)


def covers(agent: Agent, name: str, *, again: bool = True) -> None:
    """Wait until the looks say nothing of it. If it was awake at the declaration, that is made ``again``."""
    end, calm = time.monotonic() + PATIENCE_SECONDS, 0
    while calm < 5:
        found = texts_of(agent, name)
        assert not any("has called by itself" in text for text in found)
        assert time.monotonic() < end, found
        calm = 0 if found else calm + 1
        if again and any("resumed" in text for text in found):
            agent.idle()
        time.sleep(PAUSE_SECONDS / 3)


@pytest.mark.parametrize(
    ("kind", "acts"),
    [("sleeps", True), ("waits_for_stop", True), ("polls_queue", False), ("polls_condition", False), ("declares", False)],
)
def test_a_thread_that_has_called_between_two_sleeps_is_at_work(
    alone: Callable[..., Agent], pollers: Callable[[str], Poller], kind: str, acts: bool
) -> None:
    poller = pollers(kind)
    front = poller.agent
    with (
        serving(alone("back"), Do=echo) as behind,
        grpc.insecure_channel(behind) as outgoing,
        serving(front, Do=echo) as address,
        grpc.insecure_channel(address) as channel,
    ):
        send: Any = front.channel(outgoing).unary_unary("/s/Do")
        poller.send = send
        threading.Thread(target=poller.run, name="poller", daemon=True).start()
        time.sleep(5 * PAUSE_SECONDS)
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        covers(front, "poller")
        poller.give()
        assert poller.sent.acquire(timeout=PATIENCE_SECONDS)
        if acts:
            says(front, "thread poller, has called by itself after")
            front.idle()
        covers(front, "poller", again=acts)
        poller.stop.set()


@pytest.mark.parametrize("kind", ["sleeps", "waits_for_stop"])
def test_a_task_that_has_called_between_two_sleeps_is_at_work(
    alone: Callable[..., Agent], pollers: Callable[[str], Poller], kind: str
) -> None:
    poller, loop = pollers(kind), asyncio.new_event_loop()
    front = poller.agent
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with (
        serving(alone("back"), Do=echo) as behind,
        serving(front, Do=echo) as address,
        grpc.insecure_channel(address) as channel,
    ):

        async def publish() -> None:
            async with grpc.aio.insecure_channel(behind) as outgoing:
                send: Any = front.channel(outgoing).unary_unary("/s/Do")
                await poller.arun(send)

        ended = asyncio.run_coroutine_threadsafe(publish(), loop)
        time.sleep(5 * PAUSE_SECONDS)
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        covers(front, "test_pollers")
        poller.give()
        assert poller.sent.acquire(timeout=PATIENCE_SECONDS)
        says(front, ", has called by itself since")
        front.idle()
        covers(front, "test_pollers")
        poller.stop.set()
        ended.result(PATIENCE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
