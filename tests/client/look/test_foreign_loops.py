"""Event loops of other libraries, and loops that do not always run: at work while they have more than at the declaration."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from tests.client.look.test_child_processes import wait_until
from tests.client.look.worlds import PATIENCE_SECONDS, serving

Later = Callable[[Callable[[], object]], object]
FAR_SECONDS = 600.0


class Trio:
    """A loop of trio in a thread, with a task that sleeps in a loop."""

    def __init__(self) -> None:
        self._trio: Any = pytest.importorskip("trio")
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._trio.run, args=(self._main,), name="loop")
        self._thread.start()
        assert self._up.wait(PATIENCE_SECONDS)

    async def _main(self) -> None:
        self._token = self._trio.lowlevel.current_trio_token()
        async with self._trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._trio.sleep, FAR_SECONDS)
            self._up.set()
            await self._trio.sleep_forever()

    async def _work(self) -> None:
        await self._trio.sleep(FAR_SECONDS)

    def give_work(self) -> None:
        self._trio.from_thread.run_sync(self._nursery.start_soon, self._work, trio_token=self._token)

    def stop(self) -> None:
        self._trio.from_thread.run_sync(self._nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join(PATIENCE_SECONDS)


class Twisted:
    """A reactor of Twisted in a thread, with a timer."""

    def __init__(self) -> None:
        base: Any = pytest.importorskip("twisted.internet.epollreactor")
        self._reactor = base.EPollReactor()
        up = threading.Event()
        self._reactor.callLater(FAR_SECONDS, int)
        self._reactor.callWhenRunning(up.set)
        self._thread = threading.Thread(target=self._reactor.run, args=(False,), name="loop")
        self._thread.start()
        assert up.wait(PATIENCE_SECONDS)

    def give_work(self) -> None:
        self._reactor.callFromThread(self._reactor.callLater, FAR_SECONDS, int)

    def stop(self) -> None:
        self._reactor.callFromThread(self._reactor.stop)
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture(params=[Trio, Twisted])
def loop(request: pytest.FixtureRequest) -> Iterator[Any]:
    loop = request.param()
    yield loop
    loop.stop()


def loops_at_work(agent: Agent) -> list[str]:
    found = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
    return [text for text in found if "event loop of" in text or "thread loop" in text]


def test_work_that_a_handler_gives_to_another_event_loop_is_active(alone: Callable[..., Agent], loop: Any) -> None:
    front = alone("front")
    with serving(front, Do=lambda request, _: request) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        wait_until(lambda: loops_at_work(front) == [])
        loop.give_work()
        wait_until(lambda: loops_at_work(front) != [])
        assert "with work since" in loops_at_work(front)[0]


class Pump:
    """Runs a loop of asyncio's for a moment now and then, as programs with another main loop do."""

    def __init__(self) -> None:
        self.loop, self._over = asyncio.new_event_loop(), threading.Event()
        self._rests, self._piece = False, threading.Lock()
        self.at_rest = self.loop.create_task(asyncio.sleep(FAR_SECONDS))
        self._thread = threading.Thread(target=self._run, name="pump")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with self._piece:
                if not self._rests:
                    self.loop.run_until_complete(asyncio.sleep(0))
            self._over.wait(0.05)
        self.at_rest.cancel()
        for one in self.given:
            one.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    given: list[asyncio.Task[None]]

    def rest(self) -> None:
        """The loop does not run from now on, as between two pieces."""
        self._rests = True
        with self._piece:
            pass

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)


async def sends_later() -> None:
    await asyncio.sleep(FAR_SECONDS)


def test_work_that_a_handler_gives_to_a_loop_run_in_pieces_is_active(alone: Callable[..., Agent]) -> None:
    front, pump = alone("front"), Pump()

    def work() -> list[str]:
        found = front.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
        return [text for text in found if "sends_later" in text]

    def gives(request: bytes, _: Any) -> bytes:
        if request:
            pump.given = [pump.loop.create_task(sends_later())]
        return request

    pump.given = []
    with serving(front, Do=gives) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        assert work() == []
        do(b"given")
        pump.rest()
        wait_until(lambda: work() != [])
    pump.stop()
