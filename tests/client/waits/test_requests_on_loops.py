"""What the methods of a server on an event loop lead to: requests to come reach it, and so do parties that they hand it to."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.runtime import compat
from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import requests, thread_waits
from stilltrue.runtime.waits.reachability.loops.waking import names_ending
from stilltrue.runtime.waits.reachability.task_waits import TaskWaits
from tests.client.look.worlds import report_of

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read"),
]

PATIENCE_SECONDS, FAR_SECONDS = 30.0, 600.0
ATTEMPTS, ATTEMPTS_IN_VAIN, PAUSE_SECONDS = 40, 2, 0.2
_PAUSED: list[Any] = []
"""Coroutines and generators that no task awaits."""


class Desk:
    """Keeps the futures and events for which its callers wait, one each."""

    def __init__(self) -> None:
        self.pending: dict[bytes, Any] = {}
        self.box = asyncio.Queue[Any]()
        self.gate = asyncio.Event()
        self.kept: list[Any] = []

    async def ask(self, request: bytes, context: Any) -> bytes:
        answered = self.pending[request] = asyncio.get_running_loop().create_future()
        return bytes(await answered)

    async def ask_for_an_event(self, request: bytes, context: Any) -> bytes:
        names = set(request)
        loaded = self.pending.get(request)
        if loaded is None:
            loaded = self.pending[request] = asyncio.Event()
            if names:
                await self.gate.wait()
            loaded.set()
        await loaded.wait()
        return request

    async def count(self, request: bytes, context: Any) -> bytes:
        return b"%d" % len(set(self.pending))

    async def answer(self, request: bytes, context: Any) -> bytes:
        self.answer_all()
        return request

    async def wait_as_well(self, request: bytes, context: Any) -> bytes:
        return bytes(await self.pending[request])

    async def hand_on(self, request: bytes, context: Any) -> bytes:
        self.box.put_nowait(self.pending[request])
        return request

    async def set_all(self, request: bytes, context: Any) -> bytes:
        for one in self.pending.values():
            one.set()
        return request

    def answer_all(self) -> None:
        for one in self.pending.values():
            end(one)


Box = asyncio.Queue[Any]
"""It has what a method hands on; whoever has the box does not have the desk."""


def answer(box: Box) -> None:
    while not box.empty():
        end(box.get_nowait())


async def answer_what_comes(box: Box) -> None:
    end(await box.get())


async def answer_later(box: Box) -> None:
    await asyncio.sleep(FAR_SECONDS)
    answer(box)


async def answers_one_by_one(box: Box) -> Any:
    while True:
        yield box
        answer(box)


class Answers(asyncio.Protocol):
    """Answers all when something is received."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def data_received(self, data: bytes) -> None:
        answer(self.box)


def end(one: Any) -> None:
    if isinstance(one, asyncio.Event):
        one.set()
    elif not one.done():
        one.set_result(b"")


async def nothing(desk: Desk) -> None:
    pass


async def a_task_that_sleeps(desk: Desk) -> None:
    desk.kept.append(asyncio.create_task(asyncio.sleep(FAR_SECONDS), name="sleeper"))


async def a_timer_of_something_else(desk: Desk) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, desk.kept.clear)


async def a_connection_of_asyncio(desk: Desk) -> None:
    ours, theirs = socket.socketpair()
    desk.kept += [theirs, await asyncio.open_connection(sock=ours)]


async def a_timer(desk: Desk) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, answer, desk.box)


async def a_reader(desk: Desk) -> None:
    desk.kept += (ends := os.pipe())
    asyncio.get_running_loop().add_reader(ends[0], answer, desk.box)


async def what_connections_call(desk: Desk) -> None:
    async def connected(_reader: Any, _writer: Any, box: Box = desk.box) -> None:
        answer(box)

    desk.kept.append(await asyncio.start_server(connected, "127.0.0.1", 0))


async def protocols_of_connections_to_come(desk: Desk) -> None:
    desk.kept.append(await asyncio.get_running_loop().create_server(partial(Answers, desk.box), "127.0.0.1", 0))


async def the_protocol_of_a_connection(desk: Desk) -> None:
    ours, theirs = socket.socketpair()
    desk.kept += [theirs, await asyncio.get_running_loop().connect_accepted_socket(partial(Answers, desk.box), ours)]


async def a_task_that_may_be_handed_it(desk: Desk) -> None:
    desk.kept.append(asyncio.create_task(answer_what_comes(desk.box), name="answers"))
    await asyncio.sleep(0)


async def awaits_what_comes(box: Box) -> None:
    await (await box.get())


async def awaits_what_comes_for_a_time(box: Box) -> None:
    await asyncio.wait_for(await box.get(), FAR_SECONDS)


async def a_task_that_may_await_it(desk: Desk) -> None:
    desk.kept.append(asyncio.create_task(awaits_what_comes(desk.box), name="awaits"))
    await asyncio.sleep(0)


async def a_task_that_may_await_it_for_a_time(desk: Desk) -> None:
    desk.kept.append(asyncio.create_task(awaits_what_comes_for_a_time(desk.box), name="awaits"))
    await asyncio.sleep(0)


async def a_coroutine_that_has_yet_to_begin(desk: Desk) -> None:
    _PAUSED.append(answer_later(desk.box))


async def a_suspended_generator(desk: Desk) -> None:
    generator = answers_one_by_one(desk.box)
    await anext(generator)
    _PAUSED.append(generator)


@pytest.fixture(autouse=True)
def only_the_desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave out the functions, generators and threads of others."""
    own = [one for one in vars(Desk).values() if callable(one)]
    monkeypatch.setattr(requests, "census", lambda: (own, list(_PAUSED)))
    monkeypatch.setattr(requests, "SECONDS_MAX", PATIENCE_SECONDS)
    yield
    for one in _PAUSED:
        getattr(one, "close", list)()
    _PAUSED.clear()


@contextmanager
def asking(
    agent: Agent,
    beside: Callable[[Desk], Any] = nothing,
    ask: str = "ask",
    callers: int = 1,
    attempts: int = ATTEMPTS,
    **methods: str,
) -> Iterator[set[str] | None]:
    """The names of the tasks, and "loop" for the loop's thread, that are proved to be able to end the last caller's wait."""
    before = [*compat.threads().values(), threading.current_thread()]
    loop, desk = asyncio.new_event_loop(), Desk()
    thread = threading.Thread(target=loop.run_forever, name="loop")
    thread.start()

    async def begin() -> tuple[Any, int]:
        every = {"Ask": ask, **methods}
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(getattr(desk, method)) for name, method in every.items()
        }
        server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await beside(desk)
        return server, port

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PATIENCE_SECONDS)

    async def finish() -> None:
        desk.gate.set()
        desk.answer_all()
        await asyncio.sleep(0.1)
        await server.stop(0)
        for one in asyncio.all_tasks():
            if one is not asyncio.current_task() and not compat.is_grpc_task(one):
                one.cancel()

    server, port = run(begin())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asks: Any = channel.unary_unary("/s/Ask")
        calls = [asks.future(b"it")]
        waiting = until_waiting(loop, 1)
        if callers > 1:
            calls.append(asks.future(b"it"))
            waiting = until_waiting(loop, callers)
        try:
            yield reaching(waiting[-1], before, attempts)
        finally:
            run(finish())
            for call in calls:
                call.exception(PATIENCE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(PATIENCE_SECONDS)


def until_waiting(loop: asyncio.AbstractEventLoop, count: int) -> list[Task]:
    """The tasks that serve calls and wait, oldest first, once there are so many."""
    known: dict[Task, None] = {}
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        every = [one for one in compat.tasks_of(loop) or () if compat.is_grpc_task(one)]
        serving = [one for one in every if "/s/Ask" in one.get_name() and blocking_future(one) is not None]
        known.update(dict.fromkeys(one for one in sorted(serving, key=id) if names_ending(one)))
        if len(known) == count:
            return list(known)
        time.sleep(0.01)
    raise AssertionError("they do not wait")


def reaching(task: Task, left_out: list[threading.Thread], attempts: int) -> set[str] | None:
    future, proof = OwnRef(blocking_future(task)), None
    for attempt in range(attempts):  # a thread that is in the middle of something is doubt, and agents try again
        time.sleep(PAUSE_SECONDS if attempt and proof is None else 0.0)
        proof = proof or thread_waits.proved({task: future}, time.thread_time() + PATIENCE_SECONDS).get(task)
    if proof is None:
        return None
    found = {thread.name for one in proof.threads if (thread := compat.threads()[one]) not in left_out}
    return found.union(one.get_name() for weak, _ in proof.tasks if (one := weak()) is not None)


@pytest.mark.parametrize("beside", [nothing, a_task_that_sleeps, a_timer_of_something_else, a_connection_of_asyncio])
def test_what_ends_no_wait_is_no_way_to_end_it(alone: Callable[..., Agent], beside: Any) -> None:
    with asking(alone("front"), beside, Count="count", Hand="hand_on") as reached:
        assert reached == set()


@pytest.mark.parametrize(
    "beside", [a_timer, a_reader, what_connections_call, protocols_of_connections_to_come, the_protocol_of_a_connection]
)
def test_the_loops_thread_runs_what_ends_the_wait(alone: Callable[..., Agent], beside: Any) -> None:
    with asking(alone("front"), beside, Hand="hand_on") as reached:
        assert reached == {"loop"}


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="needs uvloop")
@pytest.mark.parametrize(
    "beside", [a_timer, a_reader, what_connections_call, protocols_of_connections_to_come, the_protocol_of_a_connection]
)
def test_so_does_that_of_uvloop(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, beside: Any) -> None:
    monkeypatch.setattr(asyncio, "new_event_loop", importlib.import_module("uvloop").new_event_loop)
    with asking(alone("front"), beside, Hand="hand_on", attempts=ATTEMPTS_IN_VAIN) as reached:
        assert reached is None or "loop" in reached


def test_a_task_that_ends_what_it_is_handed_stands_for_the_requests_to_come(alone: Callable[..., Agent]) -> None:
    with asking(alone("front"), a_task_that_may_be_handed_it, Hand="hand_on") as reached:
        assert reached == {"answers"}


@pytest.mark.parametrize("beside", [a_task_that_may_await_it, a_task_that_may_await_it_for_a_time])
def test_so_does_a_task_that_awaits_it_for_when_that_is_cancelled_it_is_too(alone: Callable[..., Agent], beside: Any) -> None:
    with asking(alone("front"), beside, Hand="hand_on") as reached:
        assert reached == {"awaits"}


@pytest.mark.parametrize("beside", [a_coroutine_that_has_yet_to_begin, a_suspended_generator])
def test_a_coroutine_that_anybody_may_resume_makes_it_unknown(alone: Callable[..., Agent], beside: Any) -> None:
    with asking(alone("front"), beside, Hand="hand_on", attempts=ATTEMPTS_IN_VAIN) as reached:
        assert reached is None


@pytest.mark.parametrize("method", ["answer", "wait_as_well"])
def test_a_method_that_may_end_the_wait_makes_it_unknown(alone: Callable[..., Agent], method: str) -> None:
    with asking(alone("front"), Other=method, attempts=ATTEMPTS_IN_VAIN) as reached:
        assert reached is None


def test_a_method_that_sets_its_own_event_is_no_way_to_set_another(alone: Callable[..., Agent]) -> None:
    with asking(alone("front"), ask="ask_for_an_event", callers=2, Count="count") as reached:
        assert reached is not None
        assert [one for one in reached if "Ask" in one] == list(reached)


def test_a_method_that_sets_any_event_makes_it_unknown(alone: Callable[..., Agent]) -> None:
    with asking(alone("front"), ask="ask_for_an_event", callers=2, Answer="set_all", attempts=ATTEMPTS_IN_VAIN) as reached:
        assert reached is None


def test_a_task_whose_end_calls_what_ends_the_wait_stands_for_the_requests_to_come(alone: Callable[..., Agent]) -> None:
    async def calls_at_its_end(desk: Desk) -> None:
        def done(_: Any, box: Box = desk.box) -> None:
            answer(box)

        await a_task_that_sleeps(desk)
        desk.kept[0].add_done_callback(done)

    with asking(alone("front"), calls_at_its_end, Hand="hand_on") as reached:
        assert reached == {"sleeper"}


def test_a_future_that_a_handler_awaits_itself_is_searched_for(alone: Callable[..., Agent]) -> None:
    agent = alone("front")
    with asking(agent):
        until = time.monotonic() + PATIENCE_SECONDS
        while not any(
            names_ending(task) for one in agent._observer.searchers.reached._candidates.values() if (task := one.task())
        ):
            assert time.monotonic() < until
            report_of(agent)


def test_what_a_cut_cannot_prove_is_proved_between_cuts(alone: Callable[..., Agent]) -> None:
    with asking(alone("front"), ask="ask_for_an_event", callers=2):
        every = [one for one in compat.tasks_of_all_loops() if "/s/Ask" in one.get_name() and names_ending(one)]
        waits = TaskWaits()
        waits.remember((one, blocking_future(one)) for one in every)
        assert not waits.at_cut()
        until = time.monotonic() + PATIENCE_SECONDS
        while any(one.proof is None for one in waits._candidates.values()):
            assert time.monotonic() < until
            waits.search()
