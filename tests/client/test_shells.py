"""The records of calls made and served by every shell: one suite for threads, loops, and sync handlers on a loop."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import CallNumber
from stilltrue.protocol.report import CallerTarget, CallTarget, LocalWait
from stilltrue.protocol.stamp import METADATA_KEY
from stilltrue.runtime.locked_recorder import LockedRecorder
from tests.client.shells import PATIENCE_SECONDS, SHELLS, AioWorld, World, handlers, make_world

Alone = Callable[..., Agent]
FOREIGN = (METADATA_KEY, "elsewhere;7;3;0;1")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def world(shell: str, alone: Alone) -> Iterator[World]:
    world = make_world(shell, alone)
    yield world
    world.go.set()
    world.settle()
    world.close()


def served_calls(world: World) -> int:
    """The number of calls whose handlers have begun. A report also has those as served that interceptors on a loop work on."""
    return sum(call.serving for call in tuple(world.server.live.recorder.calls_served.values()))


# -- queues and ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["threads", "pool of a loop"], indirect=True)
def test_a_call_is_queued_behind_the_pool_until_a_worker_takes_it(world: World) -> None:
    calls = [world.start("Do", b"x") for _ in range(3)]
    expected = [(True, "workers"), (False, "workers"), (False, "workers")]
    world.until(lambda: sorted(world.served(), reverse=True) == expected)
    report = world.report(world.server)
    assert [(pool.name, pool.size, pool.queued) for pool in report.pools] == [("workers", 1, 2)]
    world.go.set()
    assert [call.result() for call in calls] == [b"x"] * 3
    world.until(lambda: world.report(world.server).served == ())


@pytest.mark.parametrize("shell", ["threads", "pool of a loop"], indirect=True)
def test_a_call_cancelled_while_queued_is_withdrawn(world: World) -> None:
    first = world.start("Do", b"x")
    world.until(lambda: served_calls(world) == 1)
    second = world.start("Do", b"y")
    world.until(lambda: len(world.served()) == 2)
    second.cancel()
    world.until(lambda: [made.doubtful for made in world.report(world.client).made] == [False, True])
    world.go.set()
    assert first.result() == b"x"
    world.until(lambda: world.report(world.server).served == ())
    (seen,) = world.report(world.server).seen
    assert (seen.highest, seen.numbers) == (2, (1, 2))


def test_a_handler_without_its_caller_is_cancelled_or_reported(shell: str, world: World) -> None:
    call = world.start("Do", b"x")
    world.until(lambda: served_calls(world) == 1)
    assert [served.hung_up for served in world.report(world.server).served] == [False]
    call.cancel()
    if shell == "loop":
        world.until(lambda: world.report(world.server).served == ())
    else:
        world.until(lambda: [served.hung_up for served in world.report(world.server).served] == [True])
        assert [served.interruptible for served in world.report(world.server).served] == [False]
    world.go.set()
    world.until(lambda: world.report(world.server).served == ())


def test_a_call_that_the_server_refuses_is_withdrawn(shell: str, alone: Alone) -> None:
    world = make_world(shell, alone, maximum_concurrent_rpcs=1)
    first = world.start("Do", b"x")
    world.until(lambda: served_calls(world) == 1)
    with pytest.raises(grpc.RpcError):
        world.start("Do", b"y").result()
    world.until(lambda: len(world.served()) == 1)
    world.go.set()
    assert first.result() == b"x"
    world.settle()
    world.close()


def test_the_deadline_of_a_call_is_known_at_both_ends(world: World) -> None:
    call = world.start("Do", b"x", timeout=60)
    world.until(lambda: served_calls(world) == 1)
    (served,), (made,) = world.report(world.server).served, world.report(world.client).made
    assert served.deadline is not None
    assert made.deadline is not None
    assert abs(served.deadline - made.deadline) < 1
    world.go.set()
    assert call.result() == b"x"


@pytest.mark.parametrize("shell", ["threads"], indirect=True)  # grpc.aio does not report it before the behaviour runs
def test_the_deadline_of_a_queued_call_is_known_to_the_server(world: World) -> None:
    first, second = world.start("Do", b"x"), world.start("Do", b"y", timeout=60)
    world.until(lambda: sorted(world.served()) == [(False, "workers"), (True, "workers")])
    (queued,) = [served for served in world.report(world.server).served if not served.serving]
    (made,) = [made for made in world.report(world.client).made if made.number == queued.number]
    assert (queued.deadline is None) == (made.deadline is None)
    deadlines = {served.deadline is None for served in world.report(world.server).served}
    assert deadlines == {True, False}
    world.go.set()
    assert [first.result(), second.result()] == [b"x", b"y"]


def test_a_stream_that_is_cancelled_is_settled(world: World) -> None:
    stream = world.start("Many", b"x")
    assert stream.next() == b"x"
    stream.cancel()
    world.until(lambda: all(made.doubtful for made in world.report(world.client).made))
    world.go.set()
    world.until(lambda: world.report(world.server).served == ())


@pytest.mark.parametrize("shell", ["threads"], indirect=True)  # grpc.aio keeps running a dropped stream
def test_a_stream_that_is_dropped_is_settled(world: World) -> None:
    stream = world.start("Many", b"x")
    world.until(lambda: [made.doubtful for made in world.report(world.client).made] == [False])
    del stream.inner
    world.until(lambda: collected() and all(made.doubtful for made in world.report(world.client).made))
    world.go.set()
    world.until(lambda: collected() and world.report(world.server).served == ())


def collected() -> bool:
    """Collect garbage, which is what ends a dropped call, at the server too if its handler never runs on."""
    gc.collect()
    return True


def test_a_call_that_cannot_be_made_is_in_doubt(shell: str, world: World) -> None:
    assert cannot_be_made(shell, world) == 0
    assert [made.doubtful for made in world.report(world.client).made] == [True]


def test_a_call_fails_as_without_the_agent_even_if_the_recorder_fails(
    shell: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(LockedRecorder, "settled", lambda *_, **__: 1 / 0)
        assert cannot_be_made(shell, world) == 1
    world.client.live.faults = 0
    (made,) = world.client.live.recorder.calls_made.values()
    world.client.live.settled(made, None, True)


def cannot_be_made(shell: str, world: World) -> int:
    """Make a call that gRPC refuses to start; returns the number of failures counted by the shell."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no channel")

    stub = world.stub(world.client, "Do")

    async def make_on_loop() -> None:
        stub._inner = refuse
        stub(b"x")

    def make() -> None:
        if isinstance(world, AioWorld) and shell == "loop":
            world.run(make_on_loop())
        else:
            stub._inner = SimpleNamespace(future=refuse)
            stub.future(b"x")

    with pytest.raises(OSError, match="no channel"):
        make()
    return world.client.live.faults


# -- waits -------------------------------------------------------------------------------------------------------------


def test_a_call_is_waited_for_only_while_its_result_is_awaited(shell: str, world: World) -> None:
    call = world.start("Do", b"x")
    report = world.report(world.client)
    assert (len(report.made), report.waits) == (1, ())
    asked = call.ask()
    (wait,) = world.until(lambda: world.report(world.client).waits)
    assert (wait.among, wait.deadline) == ((CallTarget(number=CallNumber(1)),), None)
    assert wait.waiter != world.report(world.client).made[0].party
    assert wait.waiter.startswith("client/thread:asker" if shell == "threads" else "client/task:")
    world.go.set()
    assert asked.result() == b"x"
    assert world.report(world.client).waits == ()


@pytest.mark.parametrize("method", ["code", "details", "trailing_metadata"])
def test_who_asks_how_a_call_has_ended_waits_for_its_end(world: World, method: str) -> None:
    call = world.start("Do", b"x")
    asked = world.askers.submit(call.told, method)
    (wait,) = world.until(lambda: waits_for_calls(world, world.client))
    assert (wait.among, wait.uncoloured) == ((CallTarget(number=CallNumber(1)),), False)
    world.go.set()
    asked.result()
    assert call.told("code") is grpc.StatusCode.OK
    assert world.report(world.client).waits == ()


def waits_for_calls(world: World, agent: Agent) -> list[LocalWait]:
    """The waits for either end of a call, without those of the test's threads for the event loop, which are seen, too."""
    return [wait for wait in world.report(agent).waits if isinstance(wait.among[0], CallTarget | CallerTarget)]


def test_a_reader_of_a_stream_waits_uncoloured_and_items_are_counted(world: World) -> None:
    stream = world.start("Many", b"x")
    assert stream.next() == b"x"
    rest = stream.ask()
    (wait,) = world.until(lambda: waits_for_calls(world, world.client))
    (made,) = world.report(world.client).made
    assert (wait.uncoloured, wait.among, made.received) == (True, (CallTarget(number=CallNumber(1)),), 1)
    assert world.report(world.server).served[0].sent == 1
    world.go.set()
    assert rest.result() == [b"x"]
    assert all(made.doubtful for made in world.report(world.client).made)


def test_an_item_ends_the_wait_for_it_in_the_step_that_counts_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = LockedRecorder.item_received
    left: list[int] = []

    def check(live: LockedRecorder, *arguments: Any) -> None:
        counted(live, *arguments)
        left.append(len(live.recorder.open_waits))

    monkeypatch.setattr(LockedRecorder, "item_received", check)
    world.go.set()
    assert world.start("Collect", iter([b"a", b"b"])).result() == b"ab"
    stream = world.start("Many", b"x")
    assert [stream.next(), stream.next()] == [b"x", b"x"]
    stream.cancel()
    assert left == [0, 0, 0, 0]


def test_a_server_that_reads_a_stream_waits_for_its_caller(world: World) -> None:
    feed = threading.Event()

    def letters() -> Iterator[bytes]:
        yield b"a"
        assert feed.wait(10)
        yield b"b"

    async def aio_letters() -> AsyncIterator[bytes]:
        yield b"a"
        await world.go.task.wait()
        yield b"b"

    call = world.start("Collect", letters() if world.go.loop is None else aio_letters())
    asked = call.ask()
    world.until(lambda: world.report(world.client).made[0].sent == 1)
    world.until(lambda: any(call.received == 1 for call in world.report(world.server).served))
    (wait,) = world.until(lambda: waits_for_calls(world, world.server))
    (served,) = world.report(world.server).served
    assert (wait.waiter, wait.among) == (served.party, (CallerTarget(served=served.party),))
    assert wait.uncoloured
    assert world.report(world.client).made[0].party is None  # it is unknown which party makes the items
    feed.set()
    world.go.set()
    assert asked.result() == b"ab"


def test_a_handler_that_makes_a_call_is_its_waiter(world: World) -> None:
    onward = world.stub(world.front, "Do")
    world.onward = lambda request, context: onward(request)
    call = world.start("Front", b"x")
    world.until(lambda: served_calls(world) == 1)
    world.until(lambda: len(world.report(world.front).waits) == 1)
    report = world.report(world.front)
    world.go.set()
    assert call.result() == b"x"
    assert report.waits[0].waiter == report.served[0].party == report.made[0].party == "front/Front#1"
    assert report.served[0].caller is not None
    assert report.served[0].caller.process == "client"


# -- stamps are ours alone (rule 9) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["Do", "Many", "Collect", "Chat"])
def test_a_stamp_that_a_client_passes_on_is_replaced_by_its_own(world: World, method: str) -> None:
    world.go.set()
    request: Any = b"x" if method in ("Do", "Many") else iter([b"x"])
    metadata = ((METADATA_KEY, "elsewhere;7;3;0;1"), ("kept", "yes"))
    world.start(method, request, metadata=metadata).result()
    seen = world.until(lambda: world.report(world.server).seen)
    assert [memory.caller.process for memory in seen] == ["client"]
    assert world.server.live.stamps_refused == 0


def test_a_handler_that_passes_its_metadata_on_is_the_caller(world: World) -> None:
    onward = world.stub(world.front, "Do")
    told: list[Any] = []

    def call_on(request: bytes, context: Any) -> Any:
        told.append([key for key, _ in context.invocation_metadata()])
        return onward(request, metadata=tuple(context.invocation_metadata()))

    world.onward = call_on
    world.go.set()
    assert world.start("Front", b"x", metadata=(("tenant", "t1"),)).result() == b"x"
    assert [memory.caller.process for memory in world.report(world.server).seen] == ["front"]
    assert "tenant" in told[0]
    assert METADATA_KEY not in told[0]


def test_a_reply_carries_only_its_senders_stamp(world: World) -> None:
    def forward(request: bytes, context: Any) -> Any:
        context.set_trailing_metadata((FOREIGN, ("kept", "yes")))
        return request

    async def forward_on_loop(request: bytes, context: Any) -> Any:
        return forward(request, context)

    loop_handlers = world.go.loop is not None and not getattr(world, "sync_handlers", False)
    world.onward = forward_on_loop if loop_handlers else forward
    call = world.start("Front", b"x")
    assert call.result() == b"x"
    world.until(lambda: not world.report(world.client).made)
    assert world.client.live.stamps_refused == 0
    assert [key for key, _ in call.trailing()] == ["kept"]


def test_a_caller_without_a_stamp_learns_nothing(world: World) -> None:
    world.go.set()
    (address,) = {address for agent, address in world.addresses.items() if agent is world.server}
    with grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/t.T/Do")
        for metadata in ((), (FOREIGN, FOREIGN)):
            reply, call = do.with_call(b"x", metadata=metadata)
            assert reply == b"x"
            assert METADATA_KEY not in {key for key, _ in (*call.initial_metadata(), *call.trailing_metadata())}


def test_several_stamps_make_the_caller_unknown_with_one_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.go.set()
    (address,) = {address for agent, address in world.addresses.items() if agent is world.server}
    with caplog.at_level(logging.WARNING, "stilltrue"), grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        for _ in range(2):
            assert call(b"x", metadata=(FOREIGN, (METADATA_KEY, "another;8;1;0;1"))) == b"x"
    report = world.report(world.server)
    assert report.seen == ()
    assert world.server.live.stamps_refused == 2
    end = time.monotonic() + PATIENCE_SECONDS
    while not (said := [record for record in caplog.records if "several stamps" in record.message]) and time.monotonic() < end:
        time.sleep(0.01)  # the agent logs in a thread of its own
    assert len(said) == 1


# -- strangers ---------------------------------------------------------------------------------------------------------


def test_an_error_without_a_stamp_is_an_answer_or_a_doubt(shell: str, world: World) -> None:
    def refuse(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND if request == b"known" else grpc.StatusCode.INTERNAL, "")
        return b""

    stranger = grpc.server(ThreadPoolExecutor(2), handlers(Do=refuse))
    address = f"127.0.0.1:{stranger.add_insecure_port('127.0.0.1:0')}"
    stranger.start()
    world.addresses[world.server] = address
    for word in (b"known", b"unknown"):
        with pytest.raises(grpc.RpcError):
            world.start("Do", word).result()
    stranger.stop(None).wait()
    (made,) = world.report(world.client).made
    assert (made.number, made.doubtful) == (2, True)
