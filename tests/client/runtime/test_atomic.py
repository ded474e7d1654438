"""Atomic steps of an application: a token moves in the step of the message that carries it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent, StepError
from stilltrue.model import UNKNOWN_FACT
from tests.client.cuts import Alone, Snapshots, started


class Passing:
    """Two processes that pass a token; every possible cut shows it in exactly one place."""

    def __init__(self, giver: Agent, taker: Agent) -> None:
        self.giver, self.taker = giver, taker
        self.seen: list[tuple[Any, ...]] = []
        self.fetch_hold: threading.Event | None = None
        self.wait_hold = threading.Event()
        self.give, self.take = Snapshots(giver), Snapshots(taker)
        handlers = {"Pass": self.receive, "Fetch": self.fetch, "Refuse": self.refuse, "Wait": self.wait}
        methods: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(handler) for name, handler in handlers.items()}
        self.server = grpc.server(
            ThreadPoolExecutor(2),
            handlers=[grpc.method_handlers_generic_handler("t.T", methods)],
            interceptors=[taker.server_interceptor()],
        )
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.address = f"127.0.0.1:{port}"
        self.channel = giver.channel(grpc.insecure_channel(self.address))
        self.pass_it: Any = self.channel.unary_unary("/t.T/Pass")
        self.fetch_it: Any = self.channel.unary_unary("/t.T/Fetch")

    def receive(self, request: bytes, context: Any) -> bytes:
        (call,) = self.take().served
        self.seen.append(("arrived", call.taken, dict(self.take().facts)))
        with self.taker.atomic() as step:
            step.fact(token=1)
            step.takes()
            self.seen.append(("inside", self.take().served[0].taken, dict(self.take().facts)))
        self.seen.append(("taken", self.take().served[0].taken, dict(self.take().facts)))
        return b""

    def refuse(self, request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not now")
        return request

    def wait(self, request: bytes, context: Any) -> bytes:
        self.wait_hold.wait(10)
        return request

    def fetch(self, request: bytes, context: Any) -> bytes:
        assert self.fetch_hold is None or self.fetch_hold.wait(10)
        with self.taker.atomic() as step:
            step.fact(token=0)
            step.carries(token=1)
            step.with_reply()
        self.seen.append(("before the reply", dict(self.take().facts)))
        return b""


@pytest.fixture
def passing(alone: Alone) -> Iterator[Passing]:
    passing = Passing(alone("giver"), alone("taker"))
    yield passing
    passing.wait_hold.set()
    passing.channel.close()
    passing.server.stop(None).wait()
    assert passing.giver.live.faults == passing.taker.live.faults == 0


def test_a_token_is_released_in_the_step_that_sends_it_and_taken_in_one_step(passing: Passing) -> None:
    passing.giver.fact(token=1)
    passing.taker.fact(token=0)
    with passing.giver.atomic() as step:
        step.fact(token=0)
        step.carries(token=1)
        assert passing.give().facts == {"token": 1}
        future = passing.pass_it.future(b"")
        sent = passing.give()
        assert sent.facts == {"token": 0}
    future.result()
    assert passing.seen == [
        ("arrived", False, {"token": 0}),
        ("inside", False, {"token": 0}),
        ("taken", True, {"token": 1}),
    ]


def test_a_sent_message_carries_its_facts_in_the_report(passing: Passing) -> None:
    hold = threading.Event()
    passing.fetch_hold = hold
    with passing.giver.atomic() as step:
        step.carries(token=1)
        future = passing.fetch_it.future(b"")
        (made,) = passing.give().made
        hold.set()
    future.result()
    assert made.facts == {"token": 1}


def test_facts_of_a_refused_future_are_unknown_until_the_sender_sets_them(passing: Passing) -> None:
    passing.giver.fact(token=1)
    with passing.giver.atomic() as step:
        step.fact(token=0)
        step.carries(token=1)
        refuse: Any = passing.channel.unary_unary("/t.T/Refuse")
        future = refuse.future(b"")
    with pytest.raises(grpc.RpcError):
        future.result()
    assert passing.give().facts == {"token": UNKNOWN_FACT}
    passing.giver.fact(token=1)
    assert passing.give().facts == {"token": 1}


@pytest.mark.asyncio
async def test_facts_of_a_refused_call_are_unknown_until_its_task_sets_them(
    passing: Passing,
) -> None:
    async with passing.giver.channel(grpc.aio.insecure_channel(passing.address)) as channel:
        refuse: Any = channel.unary_unary("/t.T/Refuse")
        with passing.giver.atomic() as step:
            step.fact(token=0)
            step.carries(token=1)
            call = refuse(b"")
        with pytest.raises(grpc.RpcError):
            await call
        assert passing.give().facts == {"token": UNKNOWN_FACT}
        with passing.giver.atomic() as step:
            step.fact(token=0)
            step.carries(token=1)
            with pytest.raises(grpc.RpcError):
                await refuse(b"")
            step.fact(token=1)
        assert passing.give().facts == {"token": 1}


def _carried(agent: Agent, send: Any) -> Any:
    agent.fact(token=1)
    with agent.atomic() as step:
        step.fact(token=0)
        step.carries(token=1)
        return send(b"")


def test_the_facts_of_a_cancelled_future_are_in_doubt_once_it_is_cancelled(passing: Passing) -> None:
    """The sender takes the token back at once, before gRPC has called back."""
    wait: Any = passing.channel.unary_unary("/t.T/Wait")
    future = _carried(passing.giver, wait.future)
    assert [made.doubtful for made in passing.give().made] == [False]
    with future._inner._state.condition:  # gRPC's thread needs it to call back
        future.cancel()
        passing.giver.fact(token=1)
        after = passing.give()
    assert ([(made.facts, made.doubtful) for made in after.made], after.facts) == ([({"token": 1}, True)], {"token": 1})


@pytest.mark.asyncio
async def test_the_facts_of_a_cancelled_call_are_in_doubt_once_it_is_cancelled(passing: Passing) -> None:
    """The sender takes the token back in the same turn of its loop."""
    async with passing.giver.channel(grpc.aio.insecure_channel(passing.address)) as channel:
        call = _carried(passing.giver, channel.unary_unary("/t.T/Wait"))
        await asyncio.sleep(0.05)
        assert call.cancel()
        passing.giver.fact(token=1)
        after = passing.give()
        assert ([(made.facts, made.doubtful) for made in after.made], after.facts) == ([({"token": 1}, True)], {"token": 1})
        with pytest.raises(asyncio.CancelledError):
            await call


def test_a_token_is_still_here_or_unknown_if_an_error_comes_before_its_message(passing: Passing) -> None:
    passing.giver.fact(token=1)

    def no_peer(request: bytes) -> bytes:
        raise KeyError("no peer")

    with pytest.raises(KeyError):
        _carried(passing.giver, no_peer)
    assert passing.give().facts == {"token": UNKNOWN_FACT}
    passing.giver.fact(token=1)
    assert passing.give().facts == {"token": 1}


SENDS = {"a reply": (b"x", None), "a reply that a serializer reads": ([1], bytes)}
SENDS_NOT = {"no reply": (None, bytes), "a reply of another type": (object(), bytes)}


@pytest.mark.asyncio
@pytest.mark.parametrize("shell", ["threads", "loop", "pool of a loop"])
@pytest.mark.parametrize("what", [*SENDS, *SENDS_NOT])
async def test_facts_leave_with_a_reply_only_if_grpc_can_send_it(alone: Alone, shell: str, what: str) -> None:
    taker = alone("taker")
    taker.fact(token=1)
    reply, serializer = (SENDS | SENDS_NOT)[what]

    def fetch(request: bytes, context: Any) -> Any:
        with taker.atomic() as step:
            step.fact(token=0)
            step.carries(token=1)
            step.with_reply()
        return reply

    async def fetch_on_loop(request: bytes, context: Any) -> Any:
        return fetch(request, context)

    behaviour: Any = fetch_on_loop if shell == "loop" else fetch
    handler: Any = grpc.unary_unary_rpc_method_handler(behaviour, response_serializer=serializer)
    handlers = [grpc.method_handlers_generic_handler("t.T", {"Fetch": handler})]
    server: Any
    if shell == "threads":
        server = grpc.server(ThreadPoolExecutor(1), handlers, [taker.server_interceptor()])
    else:
        server = grpc.aio.server(ThreadPoolExecutor(1), handlers, [taker.aio_server_interceptor()])
    port = server.add_insecure_port("127.0.0.1:0")
    started = server.start()
    if started is not None:
        await started
    async with alone("giver").channel(grpc.aio.insecure_channel(f"127.0.0.1:{port}")) as channel:
        fetch_it: Any = channel.unary_unary("/t.T/Fetch")
        call = fetch_it(b"")
        assert (await call.code() is grpc.StatusCode.OK) == (what in SENDS)
    report = Snapshots(taker)()
    assert report.facts == {"token": 0 if what in SENDS else 1}
    assert [dict(answer.facts) for answer in report.seen[0].answered] == [{"token": 1} if what in SENDS else {}]
    stopped = server.stop(None)
    await stopped if asyncio.iscoroutine(stopped) else stopped.wait()


def test_a_reply_taken_in_a_step_is_received_at_its_end(passing: Passing) -> None:
    passing.taker.fact(token=1)
    with passing.giver.atomic() as step:
        passing.fetch_it(b"")
        (made,) = passing.give().made
        assert not made.doubtful
        assert passing.give().waits == ()
        step.fact(token=1)
        assert passing.give().facts == {}
    after = passing.give()
    assert (after.made, after.facts) == ((), {"token": 1})
    assert passing.seen == [("before the reply", {"token": 1})]
    report = passing.take()
    assert report.facts == {"token": 0}
    assert report.seen[0].answered[0].facts == {"token": 1}


def test_a_second_message_in_a_step_is_an_error(passing: Passing) -> None:
    with passing.giver.atomic():
        passing.pass_it(b"")
        with pytest.raises(StepError, match="a second message"):
            passing.pass_it(b"")
    with pytest.raises(StepError, match="the step sent no message"), passing.giver.atomic() as step:
        step.carries(token=1)
    with pytest.raises(StepError, match="a step is already open here"), passing.giver.atomic(), passing.giver.atomic():
        pass
    with pytest.raises(StepError, match="no call is being served"), passing.giver.atomic() as step:
        step.takes()
    passing.pass_it(b"")
    assert passing.give().made == ()


def test_a_step_belongs_to_one_thread(passing: Passing) -> None:
    with passing.giver.atomic() as step:
        step.fact(token=0)
        started(lambda: passing.pass_it(b""), "other").join()
        assert passing.give().facts == {}
    assert passing.give().facts == {"token": 0}
