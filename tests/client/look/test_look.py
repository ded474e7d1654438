"""The second look (rule 10): whether the waits are the same, until when, where each party stands, and its trace."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent
from stilltrue.model import PartyName, SnapshotId, WaitNumber
from stilltrue.protocol.requests.look import LookRequest, Suspect
from tests.client.look.worlds import PATIENCE_SECONDS, LoopWorld, Stuck, look_at, look_at_caller, of, report_of, serving


def test_a_thread_still_in_a_call_is_reported_with_its_own_code(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        thread = threading.Thread(target=lambda: get(b""), name="caller")
        thread.start()
        assert stuck.inside.acquire(timeout=PATIENCE_SECONDS)
        report = report_of(front)
        seen = of(look_at(front, report), "front/thread:caller")
        assert (seen.unchanged, seen.doubt, seen.ways_out) == (True, "", ())
        assert seen.stack[0].startswith(__file__)
        assert "<lambda>" in seen.stack[0]
        stuck.go.set()
        thread.join()
        assert not of(look_at(front, report), "front/thread:caller").unchanged


def test_another_call_of_the_same_party_is_another_wait(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")

        def calls() -> None:
            get(b"")
            stuck.go.clear()
            get(b"")

        thread = threading.Thread(target=calls, name="caller")
        thread.start()
        assert stuck.inside.acquire(timeout=PATIENCE_SECONDS)
        first = report_of(front)
        stuck.go.set()
        assert stuck.inside.acquire(timeout=PATIENCE_SECONDS)
        assert not of(look_at(front, first), "front/thread:caller").unchanged
        assert of(look_at(front, report_of(front)), "front/thread:caller").unchanged
        stuck.go.set()
        thread.join()


def test_a_served_call_shows_its_handler_and_its_trace(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            return bytes(get(request))

        with serving(front, Place=place) as address, grpc.insecure_channel(address) as to_front:
            metadata = (("traceparent", f"00-{trace}-00f067aa0ba902b7-01"),)
            stub: Any = client.channel(to_front).unary_unary("/s/Place")
            call = stub.future(b"", metadata=metadata)
            assert stuck.inside.acquire(timeout=PATIENCE_SECONDS)
            seen = of(look_at(front, report_of(front)), "front/Place#")
            assert seen.trace == trace
            assert "place" in seen.stack[0]
            assert seen.deadline is None  # a thread cannot be interrupted
            stuck.go.set()
            assert call.result(PATIENCE_SECONDS) == b""


async def test_a_task_is_found_with_its_deadline_and_where_it_awaits(alone: Callable[..., Agent]) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    inside, go = asyncio.Event(), asyncio.Event()

    async def get(request: bytes, context: Any) -> bytes:
        inside.set()
        await go.wait()
        return request

    async def deeper(request: bytes) -> bytes:
        return bytes(await stub(request))

    async def place(request: bytes, context: Any) -> bytes:
        return await asyncio.create_task(deeper(request))

    addresses = []
    servers = []
    for agent, name, behaviour in ((front, "Place", place), (back, "Get", get)):
        server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
        methods: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(behaviour)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    async with grpc.aio.insecure_channel(addresses[0]) as to_front, grpc.aio.insecure_channel(addresses[1]) as to_back:
        stub: Any = front.channel(to_back).unary_unary("/s/Get")
        outer: Any = client.channel(to_front).unary_unary("/s/Place")
        call = outer(b"", timeout=60, metadata=(("b3", "a" * 32 + "-1-1"),))
        await inside.wait()
        report = report_of(front)
        look = look_at(front, report)
        handler, task = sorted(look.parties, key=lambda one: len(one.party))
        assert [one.unchanged for one in look.parties] == [True, True]
        assert handler.trace == "a" * 32
        assert handler.deadline is not None
        assert 50 < handler.deadline - report.cut_at <= 61
        assert "place" in handler.stack[0]
        assert "deeper" in task.stack[0]
        go.set()
        assert await call == b""
        assert not any(one.unchanged for one in look_at(front, report).parties)
    for server in servers:
        await server.stop(0)


def test_an_unknown_party_is_gone(alone: Callable[..., Agent]) -> None:
    agent = alone("front")
    nobody = Suspect(party=PartyName("front/thread:none"), waits=(WaitNumber(7),))
    (seen,) = agent.looker().look(LookRequest(snapshot=SnapshotId(1), suspects=(nobody,))).parties
    assert not seen.unchanged


def test_a_call_that_has_just_arrived_does_not_end_the_look(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front = alone("front")
    arrived, go_on = threading.Event(), threading.Event()

    def hold(frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_qualname == "_Handler.__init__":  # the object exists but is still empty
            arrived.set()
            assert go_on.wait(PATIENCE_SECONDS)

    threading.setprofile(hold)  # for the threads that the server starts
    with serving(front, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        threading.setprofile(None)
        get: Any = channel.unary_unary("/s/Get")
        waiting = get.future(b"")
        assert arrived.wait(PATIENCE_SECONDS)
        front.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True))
        go_on.set()
        stuck.go.set()
        waiting.result(PATIENCE_SECONDS)
    assert front.live.faults == 0


async def test_a_handler_that_gathers_a_blocked_task_waits_under_its_own_name(world: LoopWorld) -> None:
    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await world.stuck(b"")

    async def take() -> None:
        async with lock:
            pass

    async def body(_: LoopWorld) -> None:
        holder = asyncio.create_task(hold())
        await asyncio.sleep(0)
        await asyncio.gather(take())
        await holder

    await world.look(body)
    waiters = {wait.waiter for wait in world.cut.waits}
    assert any(waiter.startswith("front/Do#") for waiter in waiters)
    assert not any("HandleExceptions" in waiter for waiter in waiters)


class Thing:
    """Something of the application."""


def test_a_look_keeps_nothing_of_other_threads_alive(alone: Callable[..., Agent], stuck: Stuck) -> None:
    stop, begun = threading.Event(), threading.Event()
    things: list[weakref.ref[Thing]] = []

    def caller(get: Any) -> None:
        call = get.future(b"")

        def cancels_later() -> None:
            thing = Thing()
            things.append(weakref.ref(thing))
            begun.set()
            while not stop.is_set():
                stop.wait(0.01)
            if not things:
                call.cancel()

        watcher = threading.Thread(target=cancels_later)
        watcher.start()
        assert begun.wait(PATIENCE_SECONDS)
        call.result()
        gc.disable()
        stop.set()
        watcher.join()

    try:
        look_at_caller(alone, stuck, caller)
        assert things[0]() is None
    finally:
        gc.enable()
