"""Calls whose handler has ended without a status: gRPC sends none, so nobody can answer unless a context is left."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import has_ended
from stilltrue.protocol.report import Report
from stilltrue.runtime.calls.unanswered import UnansweredCalls
from stilltrue.runtime.compat.grpc_objects import unanswered_calls
from stilltrue.runtime.look.standing.stacks import Stacks
from tests.client.look.worlds import PATIENCE_SECONDS, look_at, of, report_of, serving

ENDED = "a/ended:Get#1"
SOON_SECONDS = 0.05


@pytest.fixture(autouse=True)
def however_large_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has collected all tests is larger than those in which contexts are searched for."""
    monkeypatch.setattr(unanswered_calls, "BLOCKS_MAX", sys.maxsize)


async def awaits_a_cancelled_task() -> None:
    task = asyncio.ensure_future(asyncio.sleep(PATIENCE_SECONDS))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def is_cancelled_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(PATIENCE_SECONDS)


async def raises() -> None:
    raise asyncio.CancelledError


Kept = list[Any]


@asynccontextmanager
async def served(agent: Agent, body: Callable[[], Any], kept: Kept | None = None, kind: str = "unary") -> AsyncIterator[Any]:
    """A call to a handler that runs ``body``; ``kept`` gets its context."""

    async def unary(request: Any, context: Any) -> Any:
        if kept is not None:
            kept.append(context)
        await body()
        return request

    async def stream(_: Any, context: Any) -> AsyncIterator[Any]:
        if kept is not None:
            kept.append(context)
        yield b"1"
        await body()

    server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
    handler: Any = {
        "unary": grpc.unary_unary_rpc_method_handler(unary),
        "stream": grpc.unary_stream_rpc_method_handler(stream),
    }[kind]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Get": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        make: Any = channel.unary_unary if kind == "unary" else channel.unary_stream
        call = make("/s/Get")(b"x")
        yield call
        call.cancel()
    await server.stop(0)


def is_final(report: Report) -> bool:
    return [one.party for one in report.served] == [ENDED] and [wait.waiter for wait in report.waits] == [ENDED]


async def report_once(agent: Agent, wanted: Callable[[Report], bool]) -> Report:
    """The first report that is as wanted, with a search after each other one; the loop goes on meanwhile."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not wanted(report := report_of(agent)):
        assert time.monotonic() < end, report
        await asyncio.sleep(SOON_SECONDS)
        agent.parties.unanswered.search(agent.live)
    return report


@pytest.mark.parametrize("body", [awaits_a_cancelled_task, is_cancelled_itself, raises])
@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_a_handler_that_ends_by_a_cancellation_leaves_its_call_to_nobody(
    alone: Callable[..., Agent], body: Callable[[], Any], kind: str
) -> None:
    agent = alone("a")
    async with served(agent, body, kind=kind):
        report = await report_once(agent, is_final)
        (call,) = report.served
        assert (call.serving, call.pool, call.interruptible) == (True, "", False)
        looked = asyncio.get_running_loop().run_in_executor(None, look_at, agent, report)
        while not looked.done():
            await asyncio.sleep(SOON_SECONDS)  # on Python 3.10 the open blocks of a running task cannot be read
        look = of(looked.result(), ENDED)
        assert (look.unchanged, look.doubt) == (True, "")
        assert any(
            re.match(r"task .*, which may close or stop it", way.text) for way in look.ways_out
        )  # at the end of `served`
    await report_once(agent, lambda report: not report.served)
    agent.parties.unanswered.search(agent.live)
    assert not list(agent.parties.unanswered)


async def test_while_its_context_is_kept_the_call_may_be_aborted(alone: Callable[..., Agent]) -> None:
    agent, kept = alone("a"), Kept()
    async with served(agent, raises, kept) as call:
        await report_once(agent, lambda report: bool(list(agent.parties.unanswered)))
        for _ in range(3):
            await asyncio.sleep(SOON_SECONDS)
            agent.parties.unanswered.search(agent.live)
            assert [one.party for one in report_of(agent).served] == ["a/Get#1"]
        asyncio.ensure_future(kept.pop().abort(grpc.StatusCode.UNAVAILABLE, "late"))  # noqa: RUF006
        with pytest.raises(grpc.aio.AioRpcError):
            await asyncio.wait_for(call, PATIENCE_SECONDS)


async def test_a_call_that_its_caller_cancels_is_over(alone: Callable[..., Agent]) -> None:
    agent = alone("a")
    begun = asyncio.Event()

    async def body() -> None:
        begun.set()
        await asyncio.sleep(PATIENCE_SECONDS)

    async with served(agent, body) as call:
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        call.cancel()
        await report_once(agent, lambda report: not report.served)
        agent.parties.unanswered.search(agent.live)
        assert not list(agent.parties.unanswered)


async def test_stacks_show_a_call_that_its_handler_has_left(alone: Callable[..., Agent]) -> None:
    agent = alone("a")
    async with served(agent, raises, kept := Kept()):
        await report_once(agent, lambda _: bool(list(agent.parties.unanswered)))
        (one,) = await asyncio.to_thread(
            lambda: [one for one in Stacks(agent.live, agent.parties, SOON_SECONDS).find(1).parties if has_ended(one.party)]
        )
        assert (one.party, one.unexplained, one.owes_reply) == (ENDED, True, True)
        assert one.blocked_in == "nothing: its handler has ended without a status"
        kept.clear()


def exits(request: Any, _: Any) -> Any:
    sys.exit(len(request))


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_handler_on_a_thread_that_exits_leaves_its_call_to_nobody(alone: Callable[..., Agent], is_kept: bool) -> None:
    agent, kept = alone("a"), Kept()

    def behaviour(request: Any, context: Any) -> Any:
        if is_kept:
            kept.append(context)
        return exits(request, context)

    with serving(agent, Get=behaviour) as address, grpc.insecure_channel(address) as channel:
        method: Any = channel.unary_unary("/s/Get")
        call = method.future(b"x")
        end = time.monotonic() + PATIENCE_SECONDS
        while not list(agent.parties.unanswered):
            assert time.monotonic() < end
            threading.Event().wait(SOON_SECONDS)
        if is_kept:
            assert [one.party for one in report_of(agent).served] == ["a/Get#1"]
            assert report_of(agent).waits == ()
        else:
            while not is_final(report := report_of(agent)):
                assert time.monotonic() < end
            assert report.served[0].pool == ""  # its worker is free
            look = of(look_at(agent, report), ENDED)
            assert (look.unchanged, look.doubt, look.ways_out) == (True, "", ())
        call.cancel()
        while report_of(agent).served:
            assert time.monotonic() < end
    kept.clear()


async def test_a_handler_that_has_not_quite_ended_is_asked_about_again() -> None:
    unanswered: UnansweredCalls = UnansweredCalls()
    nothing: Any = None
    unanswered.perhaps(nothing)  # by the current task
    unanswered.search(nothing)
    assert len(unanswered._perhaps) == 1
