"""Future calls by executors, child processes, alarms and callbacks, each with its harmless twin."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from tests.client.look.activity import Gate, acting, echo
from tests.client.look.worlds import PATIENCE_SECONDS, serving


class Leaves:
    """Ways in which a handler leaves work to others than application threads, by name; the work lasts until ``gate`` opens."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.executor = ThreadPoolExecutor(1)
        self.kept: list[Any] = []
        self.channel = grpc.insecure_channel("127.0.0.1:1")

    def subscription(self) -> None:
        self.channel.subscribe(echoes)

    def subscription_of_the_library(self) -> None:
        self.kept.append(grpc.channel_ready_future(self.channel))

    def callback_of_an_item(self) -> None:
        self.executor.submit(self._gate.go.wait, PATIENCE_SECONDS).add_done_callback(echoes)

    def item_in_a_queue(self) -> None:
        self.executor.submit(self._gate.go.wait, PATIENCE_SECONDS)
        self.executor.submit(echo, b"", None)

    def item_of_the_library(self) -> None:
        self.executor.submit(self._gate.go.wait, PATIENCE_SECONDS)

    def alarm(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_SECONDS)

    def close(self) -> None:
        self._gate.go.set()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.executor.shutdown()
        self.channel.close()


def echoes(_: object) -> None:
    echo(b"", None)


def on_alarm(*_: object) -> None:
    echo(b"", None)


@pytest.fixture
def leaves(gate: Gate) -> Iterator[Leaves]:
    before = signal.signal(signal.SIGVTALRM, on_alarm)
    leaves = Leaves(gate)
    yield leaves
    leaves.close()
    signal.signal(signal.SIGVTALRM, before)


def to_come(agent: Agent) -> tuple[str, ...]:
    words = ("connectivity", "executor", "process pool", "SIGVTALRM", "child process", "scheduled on an event loop")
    found = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
    return tuple(text for text in found if any(word in text for word in words))


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("callback_of_an_item", "echoes, a done callback of an executor item"),
        ("item_in_a_queue", "echo, an item queued for an executor"),
        ("item_of_the_library", ""),
        ("alarm", "on_alarm, the SIGVTALRM handler, due in "),
        ("subscription", "echoes, a connectivity callback of a channel"),
        ("subscription_of_the_library", ""),
    ],
)
def test_work_that_a_handler_hands_to_others_is_pending(
    alone: Callable[..., Agent], leaves: Leaves, left: str, said: str
) -> None:
    front = alone("front")

    def place(request: bytes, context: Any) -> bytes:
        if request:
            getattr(leaves, left)()
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert to_come(front) == ()
        stub(b"x")
        found = to_come(front)
        assert [text for text in found if said in text] if said else not found


def test_an_alarm_that_was_set_before_the_first_call_is_covered(alone: Callable[..., Agent], leaves: Leaves) -> None:
    front = alone("front")
    leaves.alarm()
    with serving(front, Place=echo) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert to_come(front) == ()


@pytest.mark.parametrize(("callback", "says"), [(echoes, ["echoes"]), (None, [])])
@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_items_of_a_process_pool_and_callbacks_on_their_results_are_pending_work(
    alone: Callable[..., Agent], kind: str, callback: Any, says: list[str]
) -> None:
    front = alone("front")
    spawn = get_context("spawn")
    pool: Any = spawn.Pool(1) if kind == "pool" else ProcessPoolExecutor(1, mp_context=spawn)
    reading, writing = spawn.Pipe()  # the item reads until the test writes

    def place(request: bytes, context: Any) -> bytes:
        if request and kind == "pool":
            pool.apply_async(reading.recv, callback=callback)
        elif request:
            item = pool.submit(reading.recv)
            if callback is not None:
                item.add_done_callback(callback)
        return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Place")
        stub(b"")
        assert to_come(front) == ()
        stub(b"x")
        found = [text for text in to_come(front) if not text.startswith("child process")]
        assert found.pop(0) == "a process pool with unfinished items: 1"
        assert [text.partition(",")[0] for text in found] == says
    writing.send(b"")
    if kind == "pool":
        pool.close()
        pool.join()
    else:
        pool.shutdown()


class Ticking:
    """An application timer on a loop in a thread that reschedules itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def tick(self) -> None:
        self.loop.call_later(0.01, self.tick)

    def later(self) -> None:
        self.loop.call_later(PATIENCE_SECONDS, echo, b"", None)

    def do(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def test_a_loop_timer_set_for_a_handler_is_pending_work(alone: Callable[..., Agent]) -> None:
    front, ticking = alone("front"), Ticking()
    ticking.do(ticking.tick)

    def place(request: bytes, context: Any) -> bytes:
        if request:
            ticking.do(ticking.later)
        return request

    def said() -> list[str]:
        return [text for text in to_come(front) if "run" not in text.partition(",")[0]]

    try:
        with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel:
            stub: Any = channel.unary_unary("/s/Place")
            stub(b"")
            time.sleep(0.05)
            assert said() == []
            stub(b"x")
            assert [text.partition(",")[0] for text in said()] == ["echo"]
    finally:
        ticking.close()


class Child(asyncio.SubprocessProtocol):
    """A protocol that is notified of the end of a child process."""

    def process_exited(self) -> None:
        echo(b"", None)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio watches children as readers of its loop there")
@pytest.mark.parametrize(("protocol", "says"), [(Child, ("Child.process_exited",)), (asyncio.SubprocessProtocol, ())])
async def test_a_handlers_child_process_with_a_callback_is_pending_work(
    alone: Callable[..., Agent], protocol: type[asyncio.SubprocessProtocol], says: tuple[str, ...]
) -> None:
    front = alone("front")
    started: list[asyncio.SubprocessTransport] = []

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.subprocess_exec(protocol, sys.executable, "-c", "input()")
            started.append(transport)
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        await stub(b"x")
        found = await asyncio.to_thread(to_come, front)
        assert [text.partition(",")[0] for text in found if not text.startswith("child process")] == list(says)
        started[0].kill()
        started[0].close()


@pytest.mark.parametrize(("asleep", "works"), [(True, True), (False, False)])
async def test_a_task_started_by_a_calls_callback_is_active_unless_another_party_must_wake_it(
    alone: Callable[..., Agent], asleep: bool, works: bool
) -> None:
    front = alone("front")
    tasks: list[asyncio.Task[None]] = []
    begun, event = asyncio.Event(), asyncio.Event()

    async def sends() -> None:
        begun.set()
        await (asyncio.sleep(PATIENCE_SECONDS) if asleep else event.wait())

    async def place(request: bytes, context: Any) -> bytes:
        if request:
            context.add_done_callback(lambda _: tasks.append(asyncio.get_running_loop().create_task(sends(), name="sends")))
        return request

    async with served_on_loop(front, place) as stub:
        await stub(b"")
        await stub(b"x")
        await begun.wait()
        found = await asyncio.to_thread(acting, front)
        assert [text.partition(":")[0] for text in found] == (["task sends, started since the first call"] if works else [])
        tasks[0].cancel()


@asynccontextmanager
async def served_on_loop(agent: Agent, place: Callable[..., Any]) -> AsyncIterator[Any]:
    """A stub for the method that ``place`` handles on this event loop."""
    server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
    handlers: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(place)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel.unary_unary("/s/Place")
    await server.stop(0)
