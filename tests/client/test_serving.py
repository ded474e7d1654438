"""What a server of threads records: queues, calls cancelled before they were served, refused ones, streams that are dropped."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import CallNumber, SnapshotId
from stilltrue.protocol.report import CallerTarget, CallTarget, Report

Alone = Callable[..., Agent]


class World:
    """A client and a server of one worker, whose calls are stuck until ``go``."""

    def __init__(self, client: Agent, server: Agent, **options: Any) -> None:
        self.client, self.server = client, server
        self.go = threading.Event()
        self.snapshot = 0
        methods: dict[str, Any] = {
            "Do": grpc.unary_unary_rpc_method_handler(self.do),
            "Many": grpc.unary_stream_rpc_method_handler(self.many),
            "Collect": grpc.stream_unary_rpc_method_handler(self.collect),
        }
        self.pool = server.pool(ThreadPoolExecutor(1), "workers")
        self.served = grpc.server(
            self.pool,
            handlers=[grpc.method_handlers_generic_handler("t.T", methods)],
            interceptors=[server.server_interceptor()],
            **options,
        )
        port = self.served.add_insecure_port("127.0.0.1:0")
        self.served.start()
        self.channel = client.channel(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self.do_it: Any = self.channel.unary_unary("/t.T/Do")
        self.many_of_it: Any = self.channel.unary_stream("/t.T/Many")
        self.collect_it: Any = self.channel.stream_unary("/t.T/Collect")

    def do(self, request: bytes, context: Any) -> bytes:
        assert self.go.wait(10)
        return request

    def many(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request
        assert self.go.wait(10)
        yield request

    def collect(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"".join(requests)

    def report(self, agent: Agent) -> Report:
        self.snapshot += 1
        agent.live.catch_up()
        report = agent.live.marked(SnapshotId(self.snapshot))
        assert report is not None
        return report

    def until(self, found: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not found():
            assert time.monotonic() < end
            time.sleep(0.002)

    def close(self) -> None:
        self.go.set()
        self.channel.close()
        self.served.stop(None).wait()


@pytest.fixture
def world(alone: Alone) -> Iterator[World]:
    world = World(alone("client"), alone("server"))
    yield world
    world.close()
    assert world.client.live.faults == world.server.live.faults == 0


def states(report: Report) -> list[tuple[bool, str]]:
    return [(call.serving, call.pool) for call in report.served]


def test_a_call_is_queued_behind_the_pool_until_a_worker_takes_it(world: World) -> None:
    futures = [world.do_it.future(b"x") for _ in range(3)]
    world.until(lambda: len(world.report(world.server).served) == 3 and states(world.report(world.server))[0][0])
    report = world.report(world.server)
    assert states(report) == [(True, "workers"), (False, "workers"), (False, "workers")]
    assert [(pool.name, pool.size, pool.queued) for pool in report.pools] == [("workers", 1, 2)]
    world.go.set()
    assert [future.result() for future in futures] == [b"x"] * 3
    assert world.report(world.server).served == ()


def test_a_call_cancelled_while_queued_is_withdrawn(world: World) -> None:
    first, second = world.do_it.future(b"x"), world.do_it.future(b"y")
    world.until(lambda: len(world.report(world.server).served) == 2)
    second.cancel()
    world.go.set()
    assert first.result() == b"x"
    world.until(lambda: world.report(world.server).served == ())
    (seen,) = world.report(world.server).seen
    assert (seen.highest, seen.numbers) == (2, (1, 2))
    world.until(lambda: [made.doubtful for made in world.report(world.client).made] == [True])


def test_a_handler_that_has_lost_its_caller_says_so(world: World) -> None:
    first = world.do_it.future(b"x")
    world.until(lambda: [served.serving for served in world.report(world.server).served] == [True])
    assert [served.hung_up for served in world.report(world.server).served] == [False]
    first.cancel()
    world.until(lambda: [served.hung_up for served in world.report(world.server).served] == [True])
    world.go.set()
    world.until(lambda: world.report(world.server).served == ())


def test_a_call_that_the_server_refuses_is_withdrawn(alone: Alone) -> None:
    world = World(alone("client"), alone("server"), maximum_concurrent_rpcs=1)
    first = world.do_it.future(b"x")
    world.until(lambda: len(world.report(world.server).served) == 1)
    with pytest.raises(grpc.RpcError):
        world.do_it(b"y")
    world.until(lambda: len(world.report(world.server).served) == 1)
    world.go.set()
    assert first.result() == b"x"
    world.close()


def test_the_deadline_of_a_call_is_known_at_both_ends(world: World) -> None:
    future = world.do_it.future(b"x", timeout=60)
    world.until(lambda: any(serving for serving, _ in states(world.report(world.server))))
    (served,), (made,) = world.report(world.server).served, world.report(world.client).made
    assert served.deadline is not None
    assert made.deadline is not None
    assert abs(served.deadline - made.deadline) < 1
    world.go.set()
    future.result()


def test_a_future_is_waited_for_by_who_asks_for_its_result_and_only_then(world: World) -> None:
    future = world.do_it.future(b"x")
    report = world.report(world.client)
    assert (len(report.made), report.waits) == (1, ())
    thread = threading.Thread(target=future.result, name="asker")
    thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 1)
    (wait,) = world.report(world.client).waits
    assert (wait.waiter, wait.among, wait.deadline) == ("client/thread:asker", (CallTarget(number=CallNumber(1)),), None)
    assert wait.waiter != report.made[0].party
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=0.01)
    world.go.set()
    thread.join()
    assert world.report(world.client).waits == ()


def test_the_result_of_a_future_with_a_timeout_is_a_wait_that_ends(world: World) -> None:
    future = world.do_it.future(b"x")
    thread = threading.Thread(target=lambda: future.result(timeout=60))
    thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 1)
    report = world.report(world.client)
    assert report.waits[0].deadline is not None
    assert 50 < report.waits[0].deadline - report.cut_at <= 60
    world.go.set()
    thread.join()


def test_a_reader_of_a_stream_waits_uncoloured_and_items_are_counted(world: World) -> None:
    stream = world.many_of_it(b"x")
    assert next(stream) == b"x"
    thread = threading.Thread(target=lambda: list(stream), name="reader")
    thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 1)
    report = world.report(world.client)
    (wait,), (made,) = report.waits, report.made
    assert (wait.uncoloured, wait.among, made.received) == (True, (CallTarget(number=CallNumber(1)),), 1)
    assert world.report(world.server).served[0].sent == 1
    world.go.set()
    thread.join()
    assert world.report(world.client).made == ()


def test_a_server_that_reads_a_stream_waits_for_its_caller(world: World) -> None:
    feed = threading.Event()

    def letters() -> Iterator[bytes]:
        yield b"a"
        assert feed.wait(10)
        yield b"b"

    future = world.collect_it.future(letters())
    world.until(lambda: world.report(world.client).made[0].sent == 1)
    world.until(lambda: any(call.received == 1 for call in world.report(world.server).served))
    world.until(lambda: len(world.report(world.server).waits) == 1)
    report = world.report(world.server)
    (wait,), (served,) = report.waits, report.served
    assert (wait.waiter, wait.among) == (served.party, (CallerTarget(served=served.party),))
    assert wait.uncoloured
    assert world.report(world.client).made[0].party is None  # nobody knows who makes the items
    feed.set()
    assert future.result() == b"ab"


def test_a_stream_that_is_dropped_or_cancelled_is_settled(world: World) -> None:
    stream = world.many_of_it(b"x")
    next(stream)
    stream.cancel()
    world.until(lambda: all(made.doubtful for made in world.report(world.client).made))
    world.go.set()
    world.until(lambda: world.report(world.server).served == ())
    never = world.many_of_it(b"y")
    assert never.is_active()
    del never
    gc.collect()
    world.until(lambda: all(made.doubtful for made in world.report(world.client).made))
    world.until(lambda: world.report(world.server).served == ())


def test_a_handler_that_calls_on_is_the_waiter(world: World, alone: Alone) -> None:
    front = alone("front")
    onward: Any = front.channel(world.channel._inner).unary_unary("/t.T/Do")  # type: ignore[attr-defined]
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: onward(request))
    served = grpc.server(
        ThreadPoolExecutor(2),
        handlers=[grpc.method_handlers_generic_handler("t.T", {"Front": handler})],
        interceptors=[front.server_interceptor()],
    )
    port = served.add_insecure_port("127.0.0.1:0")
    served.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/t.T/Front")
        thread = threading.Thread(target=call, args=(b"x",))
        thread.start()
        world.until(lambda: len(world.report(front).waits) == 1)
        report = world.report(front)
        world.go.set()
        thread.join()
    served.stop(None).wait()
    assert report.waits[0].waiter == report.served[0].party == report.made[0].party == "front/Front#1"
    assert report.served[0].caller is None


def test_threads_of_one_name_are_different_parties(world: World) -> None:
    def call() -> None:
        with contextlib.suppress(grpc.RpcError):
            world.do_it(b"x")

    threads = [threading.Thread(target=call, name="same") for _ in range(2)]
    for thread in threads:
        thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 2)
    waiters = {wait.waiter for wait in world.report(world.client).waits}
    world.go.set()
    for thread in threads:
        thread.join()
    assert len(waiters) == 2


def test_an_error_without_a_stamp_is_an_answer_or_a_doubt(world: World) -> None:
    stranger = grpc.server(ThreadPoolExecutor(2))

    def refuses(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND if request == b"known" else grpc.StatusCode.INTERNAL, "")
        return b""

    handler: Any = grpc.unary_unary_rpc_method_handler(refuses)
    stranger.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    port = stranger.add_insecure_port("127.0.0.1:0")
    stranger.start()
    with world.client.channel(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        for word in (b"known", b"unknown"):
            with pytest.raises(grpc.RpcError):
                call(word)
    stranger.stop(None).wait()
    (made,) = world.report(world.client).made
    assert (made.number, made.doubtful, made.strangers) == (2, True, True)
